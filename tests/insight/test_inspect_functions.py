"""`addnorm inspect file.py:function`: a module of a user's own, measured on the tokens beside it."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.outside.targets.function import function_target

pytestmark = pytest.mark.plain  # models of others

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.one, self.two = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rest = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))

    def forward(self, x, causal):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.one(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))
        return x + self.rest(self.two(x))


class Model(nn.Module):
    def __init__(self, causal=True):
        super().__init__()
        self.causal, self.tokens = causal, nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 50)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.causal)
        return self.head(x)


def build():
    torch.manual_seed(0)
    return Model(), torch.randint(50, (3, 9))


def alone():
    return build()[0]


def floats():
    return Model(), torch.randn(3, 9)


def both_ways():
    return Model(causal=False), torch.randint(50, (3, 9))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inspected.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_is_measured_on_its_tokens(folder: Path) -> None:
    measured = addnorm.inspect("inspected.py:build", map_sequences=1)["runs"][0]
    target = function_target("inspected.py:build", None)
    model, tokens = target.model, target.inputs
    with torch.no_grad():
        expected = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert measured["end"]["loss"] == pytest.approx(expected, rel=1e-6)
    assert measured["data"]["sequences"] == 3
    assert measured["missing"] == []
    matrix = addnorm.depth_matrix(model, tokens[:1, :-1])
    assert measured["end"]["depth"]["residual"]["sources"] == list(matrix.sources)
    torch.testing.assert_close(
        torch.tensor(measured["end"]["depth"]["residual"]["shares"]), matrix.shares.float(), rtol=0, atol=1e-6
    )


def test_its_measures_are_printed_and_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "inspected.py:build", "--to", "measures"]) == 0
    said = capsys.readouterr().out
    assert "which branch reads which (residual Model)" in said
    assert (folder / "measures" / "measured" / "inspected.py:build" / "insight.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["inspected.py:alone"],
            "inspected.py:alone: expected inputs beside the model, got none. Return .model, inputs.",
        ),
        (["inspected.py:floats"], r"got torch.float32 \[3, 9\]\. Return \(model, tokens\)"),
        (["inspected.py:build", "--length", "4"], "--length: expected a checkpoint as target, got a function"),
        (
            ["inspected.py:build", "--text", "book.txt"],
            "--text: expected a checkpoint as target, got a function",
        ),
        (["inspected.py:both_ways"], "expected a causal model, got one whose logits depend on later tokens"),
        (["inspected.py:nothing"], "inspected.py: no function 'nothing'. Known: "),
        (["absent.py:build"], "absent.py"),
    ],
)
def test_what_cannot_be_measured_is_one_message(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *arguments]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    with pytest.raises(InputError, match=said):
        raise InputError(message)
