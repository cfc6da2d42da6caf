"""Score residuals are what mechanisms.md section 2 says, in float64, gradients included."""

import math
from dataclasses import fields

import pytest
import torch
from comparing import assert_same_function, gradients, make, tiny, twins
from oracle import Oracle

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts

KINDS = ROOMS["scores"].kinds()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", ["none", "rope", "learned"])
def test_layer_m_attends_with_the_formula(kind: str, position: str) -> None:
    model = subject(tiny(scores=make("scores", kind), position=make("position", position)))
    assert_same_function(model, Oracle(model).logits)


def test_sum_is_realformers_running_score() -> None:
    """A_m = Q_m K_m^T / sqrt(d_k) + A_{m-1}, A_0 = 0: carried as a matrix instead of summed afresh."""
    model = subject(tiny(scores=make("scores", "sum")))

    class Running(Oracle):
        A: torch.Tensor | float = 0.0

        def scores(self, layer, queries, keys):
            self.A = queries[-1] @ keys[-1].transpose(-1, -2) / math.sqrt(self.dk) + self.A
            return self.A

    assert_same_function(model, lambda tokens: Running(model).logits(tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_at_depth_one_every_kind_is_own(kind: str) -> None:
    one, own = twins(tiny(depth=1, scores=make("scores", kind)), tiny(depth=1))
    assert_same_function(one, own, own)


@pytest.mark.parametrize(
    ("kind", "start"), [("weighted", "sum"), ("weighted_power", "sum"), ("free", "sum"), ("power", "mean")]
)
def test_learned_kinds_start_as_a_fixed_one(kind: str, start: str) -> None:
    one, fixed = twins(tiny(scores=make("scores", kind)), tiny(scores=make("scores", start)))
    assert_same_function(one, fixed, fixed)


def test_no_two_fixed_kinds_are_the_same() -> None:
    """The identities above would hold of a library in which every kind is `own`."""
    logits = {}
    for kind in ("own", "sum", "root_mean", "mean", "accumulated_projections"):
        one, _ = twins(tiny(scores=make("scores", kind)), tiny())
        with torch.no_grad():
            logits[kind] = one(some_tokens(one.spec))
    kinds = list(logits)
    for i, a in enumerate(kinds):
        for b in kinds[:i]:
            assert (logits[a] - logits[b]).abs().max() > 1e-3, (a, b)


def test_power_cannot_learn_b_at_the_first_layer() -> None:
    model = subject(tiny(scores=make("scores", "power")))
    gradient = gradients(model, model(some_tokens(model.spec)))["scores.b"]
    assert gradient[0] == 0
    assert (gradient[1:].abs() > 1e-6).all()


def test_power_shares_one_direction_between_a_and_b() -> None:
    """ds/da : ds/db = ln d_k : ln m within a layer."""
    model = subject(tiny(scores=make("scores", "power")))
    found = gradients(model, model(some_tokens(model.spec)))
    for layer in (1, 2):
        expected = found["scores.a"][layer] * math.log(layer + 1) / math.log(model.spec.shape.head_dim)
        torch.testing.assert_close(found["scores.b"][layer], expected, rtol=1e-14, atol=0)


def test_weighted_power_has_one_redundant_direction_per_pair() -> None:
    """(ln a, b) enter only through ln a + b ln d_k: d/db = ln d_k * d/d ln a, and moving along it changes nothing."""
    model = subject(tiny(scores=make("scores", "weighted_power")))
    tokens = some_tokens(model.spec)
    before = model(tokens)
    found = gradients(model, before)
    log_dk = math.log(model.spec.shape.head_dim)
    for layer in range(3):
        torch.testing.assert_close(
            found[f"scores.b.{layer}"], log_dk * found[f"scores.log_a.{layer}"], rtol=1e-14, atol=0
        )
    with torch.no_grad():
        for layer in range(3):
            model.scores.log_a[layer] += 0.7 * log_dk
            model.scores.b[layer] -= 0.7
        torch.testing.assert_close(model(tokens), before, rtol=1e-11, atol=1e-11)


WINDOWED = sorted(kind for kind in KINDS if "window" in {field.name for field in fields(make("scores", kind))})


@pytest.mark.parametrize("kind", WINDOWED)
def test_a_window_joins_the_last_layers_only(kind: str) -> None:
    model = subject(tiny(depth=4, scores=make("scores", kind, window=2)))

    class Windowed(Oracle):
        def scores(self, layer, queries, keys):
            products = [q @ k.transpose(-1, -2) for q, k in zip(queries, keys, strict=True)]
            weights = self.model.scores.weights(layer)
            assert len(weights) == min(layer + 1, 2)
            return sum(w * s for w, s in zip(weights, products[-len(weights) :], strict=True))

    assert_same_function(model, Windowed(model).logits)


@pytest.mark.parametrize("kind", WINDOWED)
def test_a_window_of_every_layer_changes_nothing_and_of_one_is_own(kind: str) -> None:
    one, other = twins(tiny(scores=make("scores", kind)), tiny(scores=make("scores", kind, window=tiny().depth)))
    assert_same_function(one, other, other)
    one, other = twins(tiny(scores=make("scores", kind, window=1)), tiny())
    assert_same_function(one, other, other)


def test_a_window_counts_at_least_one_layer() -> None:
    with pytest.raises(InputError, match=r"sum\.window: expected at least 1, or null for all layers, got 0"):
        make("scores", "sum", window=0)
