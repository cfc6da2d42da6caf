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


NORMED = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)), torch.randn(20, 3)
"""


def test_a_new_module_is_counted_in_evaluation_mode_unless_training_mode_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(NORMED)
    counts = []
    for options in ([], ["--training"]):
        assert main(["audit", f"{file}:model", "--all", "--json", *options]) == 0
        content = json.loads(capsys.readouterr().out)
        counts.append((content["training"], content["redundant"], sum(each["size"] for each in content["families"])))
    # Gains and biases that the map before the norm can do as well; a batch's mean takes away that map's biases alone.
    assert counts == [(False, 8, 8), (True, 4, 0)]


def test_no_other_options(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", target, "--all", "--methods", "static"]) == 2
    assert "expected no options beside --all" in capsys.readouterr().err
    assert main(["audit", target, "--canonical", "out.pt", "--training"]) == 2
    assert "and, with --all, --training" in capsys.readouterr().err


SHIFTED = """
import torch

class Net(torch.nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.map = torch.nn.Linear(3, 4)
        self.register_buffer("shift", torch.full((4,), shift))

    def forward(self, x):
        return self.map(x).tanh() + self.shift

def made(shift):
    torch.manual_seed(0)
    return Net(shift), torch.randn(20, 3)

def zero():
    return made(0.0)

def one():
    return made(1.0)
"""


def test_equal_weights_of_models_that_differ_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SHIFTED)
    assert main(["audit", "--diff", f"{file}:zero", f"{file}:one"]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "are different models: shift is 1 apart" in printed
    assert "so that what differs is a buffer or the code" in printed
    assert main(["audit", "--diff", f"{file}:zero", f"{file}:zero"]) == 0
    assert "(relative distance as stored 0.0e+00)" in capsys.readouterr().out
