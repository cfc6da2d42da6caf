"""Operations that torch has under two names: a graph, and what is said of a model, do not depend on which one it calls."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import addnorm
from addnorm.redundancy.execution.operation_names import COPIES, LOG_SOFTMAXES, PERMUTING, SOFTMAXES, VIEWS
from addnorm.redundancy.graph import rule
from addnorm.redundancy.graph.export import _FIRST_NAMES, export
from addnorm.redundancy.graph.read_entries import read_entries
from addnorm.symmetry.actions import call

TOKENS = torch.arange(18).reshape(2, 9) % 9


class Written(nn.Module):
    """A gated unit behind a layer norm, with every second name, or with the first ones."""

    def __init__(self, *, second: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.second = second
        self.table, self.norm = nn.Embedding(9, 6), nn.LayerNorm(6)
        self.up, self.gate, self.down = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(8, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        if self.second:
            x = torch.moveaxis(torch.swapdims(torch.divide(self.norm(x), 2.0), 1, 2), 1, 2)
            gate = torch.multiply(torch.special.expit(self.gate(x)), torch.negative(self.up(x)))
            share = torch.special.softmax(torch.clip(torch.absolute(gate), 0.0, 1.0), -1)
            return self.down(torch.concat([torch.subtract(gate, 1.0), torch.concatenate([share], -1)], -1))
        x = (self.norm(x) / 2.0).transpose(1, 2).movedim(1, 2)
        gate = torch.sigmoid(self.gate(x)) * -self.up(x)
        share = gate.abs().clamp(0.0, 1.0).softmax(-1)
        return self.down(torch.cat([gate - 1.0, torch.cat([share], -1)], -1))


def test_both_names_have_one_graph():
    graphs = [
        [
            str(node.target)
            for node in export(Written(second=each).eval(), TOKENS, observe="logits", training=False).nodes
        ]
        for each in (False, True)
    ]
    assert {name.partition(".")[0] for name in graphs[1]}.isdisjoint(_FIRST_NAMES)
    operations = [[name for name in graph if name.endswith(("Tensor", "default", "int"))] for graph in graphs]
    assert sorted(operations[0]) == sorted(operations[1])
    assert "aten.mul.Tensor" in operations[1]


@pytest.mark.parametrize("second", sorted(_FIRST_NAMES))
def test_a_second_name_takes_what_the_first_does(second):
    packet, first = getattr(torch.ops.aten, second), getattr(torch.ops.aten, _FIRST_NAMES[second])
    ours = {str(getattr(packet, each)._schema).partition("(")[2] for each in packet.overloads() if "out" not in each}
    theirs = {str(getattr(first, each)._schema).partition("(")[2] for each in first.overloads()}
    assert any(each in theirs for each in ours)


def test_both_names_have_one_answer():
    first, second = (Written(second=each).eval() for each in (False, True))
    counts = [{each.name: each.size for each in addnorm.symmetries(one, TOKENS).families} for one in (first, second)]
    assert counts[0] == counts[1]
    assert counts[0]["gain into the next matrix"] == 6
    verdicts = [
        {each.parameter: each.verdict for each in addnorm.audit(one, TOKENS).findings} for one in (first, second)
    ]
    assert verdicts[0] == verdicts[1]


class LastWeights(nn.Module):
    """A readout of the last row of weights alone."""

    def __init__(self, softmax: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.softmax = softmax
        self.table, self.query, self.out = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(9, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        return self.out(self.softmax(self.query(x) @ x.transpose(-1, -2))[:, -1])


@pytest.mark.parametrize("name", sorted(SOFTMAXES | LOG_SOFTMAXES))
def test_rows_that_nothing_reads_are_unread_before_every_softmax(name):
    further = (False,) if name in ("_softmax", "_log_softmax") else ()
    model = LastWeights(lambda scores: getattr(torch.ops.aten, name)(scores, -1, *further)).eval()
    program = export(model, TOKENS, observe="logits", training=False)
    read = read_entries(program.nodes, program.observed)
    (scores,) = (node for node in program.nodes if node.target == torch.ops.aten.matmul.default)
    assert read[scores][1].tolist() == [False] * 8 + [True]


@pytest.mark.parametrize("group", [COPIES, VIEWS, PERMUTING, SOFTMAXES, LOG_SOFTMAXES])
def test_a_group_names_operations_of_torch_that_both_searches_know(group):
    assert {name for name in group if not hasattr(torch.ops.aten, name)} == set()
    assert group <= rule.RULES.keys()
    assert group <= call.RULES.keys()
