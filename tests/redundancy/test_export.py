"""Regions without gradients are inlined where nothing else asks for `run_decompositions`, the slower half of an export."""

import logging
import operator

import pytest
import torch
from torch import nn
from toys import data

import addnorm
from addnorm.redundancy.graph import export as exports
from addnorm.redundancy.graph.export import Program, export

pytestmark = pytest.mark.compiled


class Region(nn.Module):
    """A table made without gradients, such as that of rotary positions, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def table(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * torch.tensor([0.5, 1.0, 1.5, 2.0])
        return angles.cos(), angles.sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            cos, sin = self.table(x)
        return self.second(self.first(x) * cos + sin)


class Nested(Region):
    def table(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            cos, sin = super().table(x)
        return cos + 0.0, sin


class Written(Region):
    """Its region writes a tensor in place."""

    def table(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = super().table(x)
        return cos.add_(1.0), sin


class Returned(Region):
    """Its region's results are the model's output."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        y = self.second(self.first(x))
        with torch.no_grad():
            return y + 1.0, y.cos()


def exported(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, int]:
    """The program, and the number of calls of `run_decompositions`."""
    calls = 0
    decompose = torch.export.ExportedProgram.run_decompositions

    def counted(program: torch.export.ExportedProgram, table: dict[object, object]) -> torch.export.ExportedProgram:
        nonlocal calls
        calls += 1
        return decompose(program, table)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counted)
    return export(model, data(2, 3, 4), observe="logits", training=False), calls


@pytest.mark.parametrize(("build", "decomposed"), [(Region, 0), (Nested, 0), (Written, 1), (Returned, 1)])
def test_a_region_is_inlined_unless_it_writes_or_its_results_are_the_output(
    build: type[Region], decomposed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, calls = exported(build(), monkeypatch)
    assert calls == decomposed
    assert program.observed
    for node in program.nodes:
        assert node.op in {"placeholder", "call_function"}
        if node.op == "call_function" and node.target is not operator.getitem:
            assert isinstance(node.target, torch._ops.OpOverload)
            assert not node.target._schema.is_mutable


@pytest.mark.parametrize("build", [Region, Nested, Written])
def test_a_region_does_not_change_what_is_proved(build: type[Region]) -> None:
    """By hand: W (cos * b) moves with the position, so the first bias is held; the second is the output's own."""
    audit = addnorm.audit(build(), data(2, 3, 4))
    assert [(each.redundant_dof, each.absorbable_dof) for each in audit.findings] == [(0, 0), (0, 0)]
    assert audit.disagreements == ()


def test_inlined_and_decomposed_graphs_give_one_null_space(monkeypatch: pytest.MonkeyPatch) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), Region(), nn.LayerNorm(4), nn.Linear(4, 4))

    inlined = addnorm.audit(model(), data(2, 3, 4), methods="static")
    monkeypatch.setattr(exports, "_plain", lambda module: False)
    decomposed = addnorm.audit(model(), data(2, 3, 4), methods="static")
    assert inlined.joint_null == decomposed.joint_null > 0
    assert [each.redundant_dof for each in inlined.findings] == [each.redundant_dof for each in decomposed.findings]


def test_torch_logs_again_after_an_export() -> None:
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [each.disabled for each in loggers]
    export(Region(), data(2, 3, 4), observe="logits", training=False)
    assert [each.disabled for each in loggers] == before
