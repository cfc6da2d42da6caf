"""Directions with a small but clear effect next to proved ones, which rounding turns a little.

Moonshine and Parakeet of Transformers showed it: next to singular values of a billionth of the largest, the computed null
space deviates from the proved one by an angle of 1e-7, which counted as further freedom.
"""

import pytest
import torch
from torch import Tensor, nn

import addnorm
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.redundancy.numeric import null_space_estimate
from addnorm.redundancy.numeric.probe import Probe


class Faint(nn.Module):
    """Attention, whose key bias is free, next to a branch whose output is multiplied by a small number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        self.inner, self.outer = nn.Linear(6, 12), nn.Linear(12, 6)
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)
        return mixed.tanh() + self.outer(self.inner(x).tanh()).tanh() * self.factor


@pytest.mark.parametrize("factor", [1e-3, 1e-6, 1e-8, 1e-10, 1e-11])
def test_an_effect_that_a_move_shows_is_no_freedom(factor: float) -> None:
    audit = addnorm.audit(Faint(factor), torch.randn(2, 5, 6))
    assert audit.joint_null == audit.numeric_joint_null == 6
    assert {each.verdict for each in audit.findings} <= {"redundant", "effective", "negligible"}
    assert audit.finding("k.bias").verdict == "redundant"


def test_an_effect_that_rounding_hides_is_named_as_such() -> None:
    audit = addnorm.audit(Faint(3e-14), torch.randn(2, 5, 6))
    assert audit.joint_null == 6
    assert audit.finding("k.bias").verdict == "redundant"
    for name in ("inner.bias", "outer.bias"):
        assert audit.finding(name).verdict == "unproved"
        assert "rounding hides what a move along them changes" in audit.finding(name).reason


class Missed(nn.Module):
    """A softmax written as exp over its sum, of which the static method proves nothing here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        self.last = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.q(x) @ self.k(x).mT / 4).exp()
        mixed = (weights / weights.sum(-1, keepdim=True)) @ self.v(x)
        return (mixed.tanh() @ self.last.weight.mT + self.last.bias).softmax(-1)


def test_freedom_without_a_rule_is_still_counted() -> None:
    """The near false claim: what moves do not show stays unproved, and its sentence says nothing of rounding."""
    audit = addnorm.audit(Missed(), torch.randn(2, 5, 6))
    assert audit.numeric_joint_null is not None
    assert audit.numeric_joint_null > audit.joint_null > 0
    reasons = [each.reason for each in audit.findings if each.verdict == "unproved"]
    assert reasons
    assert all("no rule proves" in reason and "hides" not in reason for reason in reasons)


class ManyWeak(nn.Module):
    """A key bias, which is free, and a bias whose entries have effects of many sizes."""

    def __init__(self, smallest: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.k, self.head, self.bias = nn.Linear(5, 5), nn.Linear(5, 24, bias=False), nn.Parameter(torch.randn(24))
        self.register_buffer("sizes", torch.logspace(0, smallest, 24))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (x @ self.k(x).mT).softmax(-1) @ x
        return torch.tanh(self.head(mixed) + self.bias * self.sizes)


@pytest.mark.parametrize(("smallest", "faint"), [(-5, 0), (-9, 1)])
def test_turned_candidates_are_set_aside_if_they_are_proved(
    smallest: float, faint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding turns proved candidates into the weak directions, which gives them an effect. What is measured of the others,
    and where, must be the same as without the proved ones."""
    model, x = ManyWeak(smallest).eval(), torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1))
    copied = generic(model, torch.float64)
    tracked = track_parameters(model, x)
    probe, cases = Probe(copied, tracked, "logits"), Cases.of(copied, bind(x), "logits")
    tried = [cases(each) for each in range(6)]
    rounding, every = probe.rounding(tried), torch.eye(tracked.size, dtype=torch.float64)
    free = torch.zeros(tracked.size, dtype=torch.bool)
    free[tracked["k.bias"].offset :][:5] = True
    proved, weak = every[:, free], every[:, ~free]
    turned = torch.linalg.qr(torch.cat([proved + 1e-5 * weak[:, -5:], weak], dim=1)).Q
    assert null_space_estimate.largest_effect(probe, tried, turned[:, :5]) > rounding
    changes, whole_batches = null_space_estimate._changes, list[int]()

    def counting(probe: Probe, point: int, inputs, space: Tensor) -> Tensor:
        whole_batches.append(space.shape[1] if len(inputs.args[0]) > 1 else 0)
        return changes(probe, point, inputs, space)

    monkeypatch.setattr(null_space_estimate, "_changes", counting)
    null, small = null_space_estimate._measured(probe, tried, turned[:, :5], turned[:, 5:], rounding, proved)
    assert torch.equal(null, proved)
    reference = null_space_estimate._by_moves(probe, tried, turned[:, 5:], rounding)
    assert small.shape == reference[1].shape
    assert (small.shape[1] > 0) == bool(faint)
    assert torch.allclose(small @ small.mT, reference[1] @ reference[1].mT)
    assert (sum(whole_batches) == 0) == (not faint)


def test_candidates_that_are_not_all_proved_are_all_measured() -> None:
    every = torch.eye(8, dtype=torch.float64)
    proved, others = every[:, :3], every[:, 3:5]
    null, rest = null_space_estimate._without_proved(torch.cat([others, proved], dim=1), proved)
    assert torch.equal(null, proved)
    assert torch.allclose(rest @ rest.mT, others @ others.mT)
    half = (every[:, 2:3] + every[:, 3:4]) / 2**0.5
    for candidate in (every[:, :2], torch.cat([every[:, :2], half], dim=1), every[:, 3:6]):
        null, rest = null_space_estimate._without_proved(candidate, proved)
        assert null.shape[1] == 0
        assert rest is candidate
    null, rest = null_space_estimate._without_proved(others, proved[:, :0])
    assert null.shape[1] == 0
    assert rest is others
