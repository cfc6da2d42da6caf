"""`addnorm audit TARGET --all`."""

import json
from pathlib import Path

import pytest

from addnorm.cli import main

MODEL = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), torch.randn(20, 3)
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MODEL)
    return f"{file}:model"


def test_text(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", target, "--all"]) == 0
    printed = capsys.readouterr().out
    assert "Sequential: 26 numbers" in printed
    assert "22 directions change the output, 4 do not, 4 of these are explained" in printed
    assert "4  scale of a unit" in printed
    assert "4: *.weight, *.bias" in printed


def test_json(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", target, "--all", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["parameters"], content["redundant"], content["refuted"]) == (26, 4, [])
    assert content["families"][0]["members"][0]["parameters"][0] == "0.weight"


def test_no_other_options(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", target, "--all", "--training"]) == 2
    assert "expected no options beside --all" in capsys.readouterr().err
