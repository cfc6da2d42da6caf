"""Effects that gradients do not show: exact cancellations, experts that no input chooses, models that leave autograd."""

import numpy as np
import pytest
import torch
from test_missed_freedom import opaque
from torch import Tensor, nn
from toys import WIDTH, Behind, data, seeded

import addnorm

pytestmark = pytest.mark.compiled


class OneWeight(nn.Module):
    """A softmax over one entry, which is one whatever its bias is."""

    def __init__(self) -> None:
        super().__init__()
        self.o, self.w = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(x) * torch.softmax(self.w(x), -1)


def test_a_softmax_over_one_entry_of_a_weight_cancels_everything() -> None:
    audit = addnorm.audit(seeded(OneWeight), data(2, 5, 4))
    assert audit.finding("w.bias").verdict == "redundant"
    assert audit.finding("o.bias").verdict == "effective"
    assert audit.disagreements == ()
    stripped, certificate = audit.strip()
    assert certificate.passed
    assert stripped.w.bias is None


class Pooled(OneWeight):
    """The softmax runs over tokens, of which the example has one; the scores pass through operations that keep axes."""

    def forward(self, x: Tensor) -> Tensor:
        scores = (2 * self.w(x)).clamp(-50, 50) + 1
        return torch.softmax(torch.tanh(scores), 1) * self.o(x)


@pytest.mark.parametrize("tokens", [1, 3])
def test_a_softmax_over_one_token_proves_nothing(tokens: int) -> None:
    audit = addnorm.audit(seeded(Pooled), data(2, tokens, 4))
    assert audit.finding("w.bias").verdict == "effective"
    assert audit.disagreements == ()


class Hypernetwork(nn.Module):
    """`linear` with a weight made of data: the last axis counts tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.stack([nn.functional.linear(q, k) for q, k in zip(self.q(x), self.k(x), strict=True)])
        return torch.softmax(scores, -1) @ self.v(x)


def test_a_linear_map_with_data_as_its_weight_has_no_fixed_axis() -> None:
    audit = addnorm.audit(seeded(Hypernetwork), data(2, 1, 4), methods="static")
    assert audit.finding("q.bias").redundant_dof == 0


class Choosing(nn.Module):
    """Two experts, of which a handicap lets only the first be chosen; both are computed."""

    def __init__(self, handicap: float) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 2, bias=False)
        self.first, self.second = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, 3)
        self.register_buffer("handicap", torch.tensor([0.0, handicap]))

    def forward(self, x: Tensor) -> Tensor:
        second = (self.router(x) + self.handicap).argmax(-1, keepdim=True) == 1
        return torch.tanh(torch.where(second, self.second(x), self.first(x)))


def test_an_expert_that_no_input_chooses_is_undecided_and_no_disagreement() -> None:
    audit = addnorm.audit(seeded(Choosing, -1e9), data(2, 8, WIDTH))
    second = audit.finding("second.bias")
    assert (second.verdict, second.unread, second.contradicted) == ("undecided", 3, False)
    assert second.reason.startswith(
        "none of the inputs tried reads it, and the static method does not prove it redundant"
    )
    assert audit.finding("first.bias").verdict == "effective"
    assert audit.agreed
    assert audit.to_json()["findings"][-1]["unread"] == 3
    both = addnorm.audit(seeded(Choosing, 0.0), data(2, 8, WIDTH))
    assert {each.verdict for each in both.findings} == {"effective"}


def test_with_many_scalars_an_expert_that_no_input_chooses_is_undecided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addnorm.redundancy.analysis.COUNTED_WITH_PROOF", 3)
    audit = addnorm.audit(seeded(Choosing, -1e9), data(2, 8, WIDTH))
    assert audit.finding("second.bias").verdict == "undecided"
    assert audit.agreed


class Detached(nn.Module):
    """Leaves autograd: its numbers pass through numpy. The second bias can take over all of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.tanh(self.second(self.first(x)).detach().numpy()))


def test_a_model_that_leaves_autograd_is_told_what_was_tested() -> None:
    audit = addnorm.audit(seeded(Detached), data(2, 6, 4))
    assert audit.methods == "numeric"
    first = audit.finding("first.bias")
    assert first.verdict == "effective"
    assert "no other tracked parameter can compensate" not in first.reason
    assert first.reason.startswith("moving it changed the output at the inputs tested")
    assert "only single moves were tried: other parameters may compensate for it" in first.reason


def test_a_static_method_without_the_rule_is_not_confirmed_by_zero_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted gap: no axis counts as fixed. The numerical method cannot tell a cancellation from an unread number."""
    monkeypatch.setattr("addnorm.redundancy.graph.rule.has_fixed_size", lambda *_: False)
    audit = addnorm.audit(seeded(OneWeight), data(2, 5, 4))
    assert audit.finding("w.bias").verdict == "undecided"
    assert audit.agreed


def test_the_static_method_alone_says_that_no_joint_move_was_tested() -> None:
    """The opaque operation's bias is effective to the static method, which has no rule for it; counted, another sentence."""
    keys = Behind(lambda k, x: opaque(x @ k.mT) @ x)
    alone = addnorm.audit(keys, data(2, 6, WIDTH), methods="static").finding("maps.0.bias")
    assert alone.verdict == "effective"
    assert "missed_freedom::softmax in the model, for which there is no rule, requires it unchanged" in alone.reason
    assert "no other tracked parameter can compensate" not in alone.reason
    assert "the static method finds no parameter that compensates for it, and no joint move was tested" in alone.reason
    x = data(2, 6, 4)
    known = addnorm.audit(seeded(nn.Linear, 4, 3), x)
    assert "no other tracked parameter can compensate for it" in known.finding("bias").reason
    many = addnorm.audit(seeded(Many), x).finding("head.bias")
    assert "no joint move was tested" in many.reason


class Many(nn.Module):
    """More scalars than the numerical method counts."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.head = nn.Linear(4, 1100), nn.Linear(1100, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.wide(x).tanh())
