"""`addnorm audit --strip` of models in half precision, and files whose certificate failed."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

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


SMALL = {"intermediate_size": 12, "max_position_embeddings": 16}


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


@pytest.mark.parametrize("extra", [[], ["--keep-float32-biases"]])
def test_a_stripped_file_is_a_target(capsys: pytest.CaptureFixture[str], extra: list[str]) -> None:
    assert main(["audit", "half_models:half", "--strip", "s.safetensors", "--json", *extra]) == 0
    before = json.loads(capsys.readouterr().out)
    gone = {*before["certificate"]["removed"], *before["certificate"]["zeroed"]}
    assert gone
    assert main(["audit", "s.safetensors", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["target"]["kind"] == "stripped file"
    assert {each["parameter"] for each in again["findings"]} == {
        each["parameter"] for each in before["findings"]
    } - gone
    assert main(["audit", "--diff", "half_models:half", "s.safetensors"]) == 0
    assert "differ only where it cannot matter" in capsys.readouterr().out


def test_a_stripped_transformers_class_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    config = json.dumps({"vocab_size": 24, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2} | SMALL)
    name = "transformers:BertForMaskedLM"
    assert main(["audit", name, "--config", config, "--strip", "b.safetensors", "--methods", "static"]) == 0
    assert main(["audit", "b.safetensors", "--methods", "static", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert not any(each["parameter"].endswith("key.bias") for each in found["findings"])


def test_other_files_are_no_targets(capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, "plain.safetensors")
    Path("damaged.safetensors").write_bytes(b"no")
    for name, told in (("plain", "written by `addnorm audit --strip`"), ("damaged", "expected a safetensors file")):
        assert main(["audit", f"{name}.safetensors"]) == 2
        assert told in capsys.readouterr().err


def test_what_is_printed_loads_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    models: dict[str, Any] = {}
    exec(MODELS, models)
    assert main(["audit", "half_models:whole", "--strip", "smaller.safetensors"]) == 0
    out = capsys.readouterr().out
    lines = out.partition("To load it, with the class that was audited:\n")[2].splitlines()
    original, x = models["whole"]()
    other = type(original)()
    exec("\n".join(line[2:] for line in lines), {"model": other, "torch": torch})
    with torch.no_grad():
        expected = original(x)["logits"]
        # A few roundings of float32 in a sum of 6 terms.
        assert (other(x)["logits"] - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not all(bool(parameter.any()) for parameter in other.parameters()), "something is gone"


def test_why_fewer_are_gone_than_can_be_given_up() -> None:
    from addnorm.reporting.audit.certificate import text

    rewrite = {
        "passed": True,
        "scalars": 192,
        "removed": ["a.bias"],
        "reduced": ["b.bias"],
        "refused": [],
        "lengths": [],
        "fresh": 1,
        "compared": [],
    }
    shown = " ".join(text(rewrite, "s.safetensors", given_up=260).split())
    assert "260 can be given up, 192 were: a file can leave out whole biases alone." in shown
    assert "The other 68 are directions inside biases that stay (b.bias)" in shown
    assert "can be given up" not in text(rewrite, "s.safetensors", given_up=192)
