"""Gradients with one entry of a batch, and as many of them as a confirmed claim leaves open."""

import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.numeric.null_space_estimate import jacobian
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
