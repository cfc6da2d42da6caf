"""Directions with a small but clear effect next to proved ones, which rounding turns a little.

Moonshine and Parakeet of Transformers showed it: next to singular values of a billionth of the largest, the computed null
space deviates from the proved one by an angle of 1e-7, which counted as further freedom.
"""

import pytest
import torch
from torch import Tensor, nn

import addnorm


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
