"""Models for which earlier versions proved a freedom that does not exist, or raised an unexpected error.

What is claimed may never be more than what is there; where it is exactly that, the number is given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from null_checks import audited, counted, hold
from torch import nn
from toys import Behind, seeded

import addnorm
from addnorm.errors import InputError
from addnorm.redundancy.graph.rules import rules

pytestmark = pytest.mark.compiled

ODD = torch.tensor([True, False, True, False, True, False])
BOUND = torch.tensor([-torch.inf, 0.3, torch.inf, torch.inf, torch.inf, torch.inf])
RAMP = torch.arange(6.0)

Op = Callable[[torch.Tensor, torch.Tensor], Any]
"""Functions of h = x W + b and the input x, both [3 samples, 4 tokens, 6 channels]."""


def data() -> torch.Tensor:
    return torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))


@dataclass
class Named:
    """An output that is neither a tuple nor a dict."""

    aside: torch.Tensor


def complex_of(h: torch.Tensor) -> torch.Tensor:
    return h.to(torch.complex128 if h.dtype == torch.float64 else torch.complex64)


CLAIMS: dict[str, tuple[Op, int]] = {
    # A real map lost the imaginary part of a factor.
    "an imaginary factor": (lambda h, x: (h * torch.tensor(1j)).imag, 0),
    "a complex matrix": (lambda h, x: (complex_of(h) @ (complex_of(torch.eye(6, dtype=h.dtype)) * 1j)).imag, 0),
    "a complex output": (lambda h, x: (x, torch.fft.fft(h)), 0),
    "a dataclass in a tuple": (lambda h, x: (x, Named(h)), 0),
    # Each factor alone leaves a mask hidden, all of them do not.
    "a mask divided three times": (lambda h, x: (h.masked_fill(x > 0.5, -1e4) / 50 / 50 / 50).softmax(-1), 0),
    "a mask lifted again": (lambda h, x: (h.masked_fill(ODD, -1e4) + ODD * 1e4).softmax(-1), 3),  # what was overwritten
    "a mask taken away": (lambda h, x: (x - h.masked_fill(x > 0.5, -1e4)).amax(1, True) + h, 0),
    "a bound that does not hide": (lambda h, x: h.clamp(max=BOUND.to(h.dtype)).softmax(-1), 0),
    # One number has no axis; its softmax is one.
    "the softmax of one number": (lambda h, x: h.sum().softmax(0) + x, 5),
    "the largest of one number": (lambda h, x: h.sum().amax(0) + x, 5),
    "the sum of one number": (lambda h, x: h.sum().sum(0) + x, 5),
    # Arguments with other names or in another order than those of similar operations.
    "addcmul with a factor": (lambda h, x: torch.addcmul(h, x, x, value=2).softmax(-1), 1),
    "take_along_dim": (lambda h, x: torch.take_along_dim(h, (x.abs() * 9).long() % 4, dim=1) - h, 6),
    "take_along_dim of all": (lambda h, x: torch.take_along_dim(h, (x.abs() * 9).long().flatten() % 4), 0),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_no_false_claim(name: str) -> None:
    op, dim = CLAIMS[name]
    case = audited(Behind(op), data())
    assert case.analysis.space.dim == dim <= counted(case)
    hold(case)


def test_the_same_bits_are_other_numbers() -> None:
    """Adding to a number does not add to the integer that has its bits."""
    case = audited(Behind(lambda h, x: h.float().view(torch.int32).float().softmax(-1)), data())
    assert case.analysis.space.dim == 0
    case = audited(Behind(lambda h, x: h.float().view(torch.float16).float().clamp(-5, 5)), data())
    assert case.analysis.space.dim == 0


def test_a_softmax_over_one_number_is_observed() -> None:
    audit = addnorm.audit(Behind(lambda h, x: (h.sum(), x)), data(), observe="softmax")
    assert audit.agreed
    assert audit.joint_null == audit.numeric_joint_null == 5


class Listed(nn.Module):
    """A key bias that is read a second time from a list."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(6, 6), nn.Linear(6, 6)
        self.again = [self.key.bias]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.query(x) @ self.key(x).mT).softmax(-1) @ x + self.again[0]


def test_a_parameter_in_a_list_is_the_parameter() -> None:
    audit = addnorm.audit(Listed(), data())
    assert audit.agreed
    assert audit.joint_null == audit.numeric_joint_null == 0


class Writes(nn.Module):
    """Writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.map(x.add_(1)).softmax(-1)


def test_the_inputs_stay_as_they_are() -> None:
    given = data()
    audit = addnorm.audit(Writes(), given)
    assert torch.equal(given, data())
    assert audit.agreed
    assert audit.joint_null == audit.numeric_joint_null == 1


def test_an_overflow_certifies_nothing() -> None:
    """Weights of 1e20 overflow float32."""
    model = Behind(lambda h, x: torch.softmax(h @ h.mT, -1) @ x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e20)
    _, certificate = addnorm.audit(model, data()).strip()
    assert [bool(each.skipped) for each in certificate.compared] == [False, True, True]
    assert all("overflows" in each.skipped for each in certificate.compared if each.skipped)


class Remembers(nn.Module):
    """Its output depends on the last call."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 6)
        self.register_buffer("last", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x + self.last
        self.last.copy_(self.map(x).mean((0, 1)))
        return out


def test_a_buffer_that_the_next_call_reads_is_observed() -> None:
    assert audited(Remembers(), data()).analysis.space.dim == 0


class Centred(nn.Module):
    """Subtracts a mean that it keeps, in a module of its own, before (`old`) or after it has written it anew."""

    def __init__(self, way: str, read: str) -> None:
        super().__init__()
        self.map, self.keeps, self.head = nn.Linear(6, 6), nn.Module(), nn.Linear(6, 7)
        self.way, self.read = way, read
        if way == "attribute":
            self.keeps.mean = torch.randn(6)
        else:
            self.keeps.register_buffer("mean", torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = self.map(x)
        mean = states.mean((0, 1))
        old = self.keeps.mean
        if self.way == "in place":
            with torch.no_grad():
                self.keeps.mean.mul_(0.9).add_(0.1 * mean)
        else:
            self.keeps.mean = mean if self.way == "whole" else 0.9 * old + 0.1 * mean.detach()
        return self.head(states - (old if self.read == "old" else self.keeps.mean))


@pytest.mark.parametrize("read", ["old", "new"])
@pytest.mark.parametrize("way", ["in place", "assigned", "whole", "attribute"])
def test_what_one_call_leaves_to_the_next_is_observed_by_both_methods(way: str, read: str) -> None:
    model = seeded(Centred, way, read).eval()
    kept = model.keeps.mean.clone()
    # The whole mean of this call is subtracted: then the bias has no effect. An older one is data.
    free = 6 if (way, read) == ("whole", "new") else 0
    audit = addnorm.audit(model, data())
    assert (audit.disagreements, audit.joint_null) == ((), free)
    assert addnorm.audit(model, data(), methods="numeric").joint_null == free
    assert addnorm.audit(model, data(), methods="static").joint_null == free
    assert torch.equal(model.keeps.mean, kept)


class Overwrites(Remembers):
    """A state that is overwritten after its use as a factor, so that autograd cannot differentiate."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x + self.last * self.map(x)
        self.last.mul_(0.9).add_(0.1 * x.mean((0, 1)))
        return out


def test_a_forward_pass_without_a_gradient() -> None:
    audit = addnorm.audit(Overwrites(), data())
    assert (audit.methods, audit.joint_null) == ("static", 0)
    assert any("expected an output that autograd can differentiate" in note for note in audit.notes)
    with pytest.raises(InputError, match="expected an output that autograd can differentiate"):
        addnorm.audit(Overwrites(), data(), methods="numeric")


class Statistics(nn.Module):
    """A batch norm whose running mean is read, as it is after the call's update."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.map, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm(self.map(x).mT)
        return out + self.weight * self.norm.running_mean[None, :, None] if self.weight else out


@pytest.mark.parametrize(("weight", "free"), [(0.0, 6), (1.0, 0)])
def test_running_statistics_that_are_read(weight: float, free: int) -> None:
    case = audited(Statistics(weight), data(), training=True)
    assert case.analysis.space.dim == free


def test_a_contradicted_claim_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`joint_null` counts what no method contradicts, whatever a rule claims."""
    monkeypatch.setitem(rules(), "gelu", rules()["zeros_like"])
    model = Behind(lambda h, x: nn.functional.gelu(h))
    audit = addnorm.audit(model, data())
    assert audit.findings[0].verdict == "undecided"
    assert audit.joint_null == audit.numeric_joint_null == 0


class Detector(nn.Module):
    """Classes and boxes of one state, as Transformers' detectors return them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.state, self.classes, self.boxes = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        h = self.state(x)
        return {
            "loss": None,
            "logits": self.classes(h.tanh()),
            "pred_boxes": self.boxes(h.tanh()),
            "last_hidden_state": h,
        }


@pytest.mark.parametrize(("observe", "free"), [("logits", 0), ("softmax", 1)])
def test_boxes_beside_logits_count(observe: Any, free: int) -> None:
    audit = addnorm.audit(Detector(), data(), observe=observe)
    dofs = {finding.parameter: finding.redundant_dof for finding in audit.findings}
    assert dofs == {"state.bias": 0, "classes.bias": free, "boxes.bias": 0}
    assert audit.joint_null == free


class Branching(nn.Module):
    """A part of the graph depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.map(x), lambda x: -self.map(x), (x,))


class Derived(nn.Module):
    """A forward pass that takes a derivative itself."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, slope = torch.func.jvp(self.map, (x,), (torch.ones_like(x),))
        return value + slope


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch.func.jvp itself
@pytest.mark.parametrize("kind", [Branching, Derived])
def test_an_operation_that_cannot_be_recorded_is_not_reported_as_wrong_inputs(kind: type[nn.Module]) -> None:
    with pytest.raises(InputError, match=rf"operations can be recorded, got {kind.__name__} with one that cannot"):
        addnorm.audit(kind().eval(), data())
    with pytest.raises(InputError, match="expected a model that runs on its example inputs, got RuntimeError"):
        addnorm.audit(kind().eval(), data()[..., :5])
    assert addnorm.audit(nn.Linear(6, 6).eval(), data()).joint_null == 0
