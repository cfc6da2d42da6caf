"""`addnorm audit --strip` of models in half precision, and files whose certificate failed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from addnorm.cli import main
from addnorm.redundancy.rewriting import strip

pytestmark = pytest.mark.compiled

MODELS = """
import torch
from torch import nn


class Fed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return {"logits": self.head(self.norm(self.up(x))), "classes": self.up(x).argmax(-1)}


def half():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return Fed().bfloat16(), torch.randn(3, 5, 4).bfloat16()


def whole():
    model, x = half()
    return model.float(), x.float()
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("half_models.py").write_text(MODELS, encoding="utf-8")
    yield
    sys.modules.pop("half_models", None)


@pytest.fixture
def _faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: every new number is wrong by one percent."""
    honest = strip.plan_removals

    def careless(*args: object, **kwargs: object) -> object:
        planned = honest(*args, **kwargs)
        return replace(planned, values={name: value * 1.01 for name, value in planned.values.items()})

    monkeypatch.setattr(strip, "plan_removals", careless)


def test_sums_in_float32_are_named_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors import safe_open

    code = main(["audit", "half_models:half", "--strip", "s.safetensors", "--keep-float32-biases"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert "eval, float64 with the numbers as stored in bfloat16: differs by" in out
    assert "Observed: logits, classes (int64)." in out
    with safe_open("s.safetensors", "pt") as file:
        kept = json.loads(file.metadata()["float32"])
        assert kept
        assert {name for name in file.keys() if file.get_tensor(name).dtype == torch.float32} == set(kept)  # noqa: SIM118
    assert f"Stored in float32: {', '.join(kept)}." in out


@pytest.mark.usefixtures("_faulty")
def test_a_failed_certificate_writes_no_file_unless_forced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "half_models:whole", "--strip", "s.safetensors"]) == 1
    out = capsys.readouterr().out
    assert "s.safetensors was not written, because the certificate failed." in out
    assert "Certificate FAILED" in out
    assert not Path("s.safetensors").exists()
    assert main(["audit", "half_models:whole", "--strip", "s.safetensors", "--force"]) == 1
    assert "Wrote s.safetensors" in capsys.readouterr().out
    assert Path("s.safetensors").exists()


@pytest.mark.parametrize("option", ["--force", "--keep-float32-biases"])
def test_options_of_a_rewrite_need_one(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main(["audit", "half_models:half", option]) == 2
    assert "expected --strip FILE beside --force or --keep-float32-biases" in capsys.readouterr().err
