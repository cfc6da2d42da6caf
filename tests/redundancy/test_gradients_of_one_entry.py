"""Gradients with one entry of a batch, and as many of them as a confirmed claim leaves open."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.numeric import null_space_estimate
from addnorm.redundancy.numeric.null_space_estimate import (
    NullSpaceEstimate,
    all_change_the_output,
    estimate_null_space,
    jacobian,
)
from addnorm.redundancy.numeric.probe import Probe


class Batched(nn.Module):
    """A convolution, a batch norm and a head, after which entries of the batch may meet."""

    def __init__(self, meeting: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.later, self.meeting = nn.Parameter(torch.randn(3)), meeting

    def forward(self, x: Tensor) -> Tensor:
        h = self.head(torch.tanh(self.norm(self.conv(x[:, None]))).mean(-1))
        match self.meeting:
            case "apart":
                return (h + self.later).tanh()
            case "centred":
                return ((h + self.later) - (h + self.later).mean(0)).tanh()
            case "sorted":
                return (h + self.later).sort(0).values.tanh()
            case "pooled":
                return (h + self.later).mean(0).tanh()
        # All entries but the first are shifted: one entry alone shows nothing of it.
        return torch.cat([h[:1], h[1:] + self.later]).tanh()


def probed(meeting: str) -> tuple[Probe, Cases]:
    model, x = Batched(meeting).eval(), torch.randn(4, 9)
    copied = generic(model, torch.float64)
    return Probe(copied, track_parameters(model, x), "logits"), Cases.of(copied, bind(x), "logits")


@pytest.mark.parametrize(
    ("meeting", "entries"), [("apart", 1), ("later", 1), ("centred", 4), ("sorted", 4), ("pooled", 4)]
)
def test_one_entry_alone_where_the_others_change_nothing(meeting: str, entries: int) -> None:
    probe, cases = probed(meeting)
    point, inputs = cases(1)
    assert len(probe.first_of_batch(inputs, point).args[0]) == entries


@pytest.mark.parametrize(("meeting", "joint"), [("apart", 4 + 3), ("later", 4), ("sorted", 4 + 3), ("pooled", 4 + 3)])
def test_the_counts_are_those_of_the_whole_batch(meeting: str, joint: int) -> None:
    """The near false claim is `later`: the first entry of every batch looks as if its bias did not matter."""
    for methods in ("both", "numeric"):
        audit = addnorm.audit(Batched(meeting).eval(), torch.randn(4, 9), methods=methods)
        assert audit.numeric_joint_null == joint
        assert audit.joint_null <= joint
        if meeting == "later":
            assert audit.finding("later").verdict == "effective"


def test_a_confirmed_claim_needs_fewer_gradients() -> None:
    probe, cases = probed("apart")
    rows, _ = jacobian(probe, cases)
    fewer, _ = jacobian(probe, cases, claimed=7)
    assert probe.tracked.size - 7 + 16 <= len(fewer) < probe.tracked.size + 16 <= len(rows)


class ManyWeak(nn.Module):
    """A table of biases whose effects decrease from clear to 1e-9, and a bias before a softmax, or none that is null.

    Args:
        hidden: what is among the weak directions: `none`, a `null` direction that no rule proves, directions that
            only the `last` entry of a batch shows, or `faint` ones.
    """

    def __init__(self, hidden: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.bias, self.hidden = nn.Linear(5, 24, bias=False), nn.Parameter(torch.randn(24)), hidden
        self.register_buffer("sizes", torch.logspace(0, -9 if hidden == "faint" else -6, 24))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias * self.sizes
        if self.hidden == "null":
            bias = bias - bias.mean() * torch.sigmoid(1e9 * torch.ones(()))  # a mean that the rules do not see
        if self.hidden == "last":
            bias = bias * torch.arange(len(x)).eq(len(x) - 1)[:, None]
        return torch.tanh(self.head(x) + bias)


@pytest.mark.parametrize(("hidden", "faint"), [("none", 0), ("null", 0), ("last", 0), ("faint", 5)])
def test_clear_effects_are_set_aside_without_another_result(
    hidden: str, faint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every direction moved at every case is the reference; what is set aside case by case must not differ from it."""

    def estimate() -> NullSpaceEstimate:
        model, x = ManyWeak(hidden).eval(), torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
        copied = generic(model, torch.float64)
        probe = Probe(copied, track_parameters(model, x), "logits")
        return estimate_null_space(probe, Cases.of(copied, bind(x), "logits"))

    quick = estimate()
    monkeypatch.setattr(null_space_estimate, "all_change_the_output", lambda *given: not given[2].shape[1])
    slow = estimate()
    assert quick.counted.joint == slow.counted.joint
    assert quick.counted.redundant == slow.counted.redundant
    assert quick.counted_weak.joint == slow.counted_weak.joint
    assert (slow.counted_weak.joint - slow.counted.joint > 0) == (faint > 0)


def test_weak_directions_are_not_moved_at_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Counter[int]()
    change = Probe.change

    def counting(self: Probe, inputs: Inputs, point: int, move: Tensor) -> Tensor:
        moved[len(inputs.args[0])] += 1
        return change(self, inputs, point, move)

    model, x = ManyWeak("none").eval(), torch.randn(4, 5)
    copied = generic(model, torch.float64)
    probe, cases = Probe(copied, track_parameters(model, x), "logits"), Cases.of(copied, bind(x), "logits")
    monkeypatch.setattr(Probe, "change", counting)
    weak = torch.eye(probe.tracked.size, dtype=torch.float64)
    assert all_change_the_output(probe, [cases(each) for each in range(6)], weak)
    assert moved[4] == 0
    assert moved[1] < 2 * probe.tracked.size  # of the six cases' moves
