"""Hidden-stream residuals are what mechanisms.md section 1 says, in float64, gradients included."""

from itertools import product
from typing import Any

import pytest
import torch
from comparing import assert_same_function, gradients, make, tiny, twins
from oracle import Oracle

from addnorm.bias import Biases
from addnorm.kernels.grouped_attention import problem_of, solve, with_value
from addnorm.kernels.grouped_attention.layerwise import solve_many
from addnorm.model import replay
from addnorm.model.spec import ModelSpec
from addnorm.testing.laws import some_tokens, subject
from pairwise import pairwise

WEIGHTS = ("sum", "mean", "softmax")
SCOPES = ("layer", "feedforward")


@pytest.mark.parametrize("weights", ["mean", "softmax"])
def test_cumulative_is_its_formula(weights: str) -> None:
    model = subject(tiny(depth=4, residual=make("residual", "cumulative", weights=weights)))
    assert_same_function(model, Oracle(model).logits)


SETTINGS: dict[str, dict[str, Any]] = {
    "grouped queries, rope": {},
    "biases, layer norm, gelu": {"bias": Biases.all(True), "norm": ("layer",), "activation": "gelu", "kv_heads": 4},
    "summed scores": {"scores": ("sum",)},
    "learned scores": {"scores": ("weighted",), "kv_heads": 1},
    "accumulated projections": {"scores": ("accumulated_projections",), "position": ("learned",)},
    "batch norm": {"norm": ("batch",), "bias": Biases.all(True)},
    "no norm": {"norm": ("none",), "init_std": 0.1},
}


def replay_model(weights: str, scope: str, setting: str) -> ModelSpec:
    changes = {
        field: make(field, *value) if isinstance(value, tuple) else value for field, value in SETTINGS[setting].items()
    }
    return tiny(residual=make("residual", "replay", weights=weights, scope=scope), **changes)


@pytest.mark.plain  # shapes of the same models are checked in tests/contracts
@pytest.mark.parametrize(("weights", "scope", "setting"), pairwise(WEIGHTS, SCOPES, tuple(SETTINGS)))
def test_replay_in_one_batched_call_is_a_loop_over_layers(weights: str, scope: str, setting: str) -> None:
    model = subject(replay_model(weights, scope, setting))
    assert_same_function(model, Oracle(model).logits)


@pytest.mark.plain  # as above
@pytest.mark.parametrize("setting", ["grouped queries, rope", "biases, layer norm, gelu"])
def test_replay_of_large_modules_one_by_one_is_the_loop_too(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stacked = [0]

    def counting(*arguments: Any, **options: Any) -> Any:
        stacked[0] += 1
        return torch.func.vmap(*arguments, **options)

    monkeypatch.setattr(replay, "vmap", counting)
    model = subject(replay_model("softmax", "layer", setting))
    model(some_tokens(model.spec))
    small = stacked[0]
    monkeypatch.setattr(replay, "_MANY", 0)
    assert_same_function(model, Oracle(model).logits)
    stacked[0] = 0
    model(some_tokens(model.spec))
    assert 0 < stacked[0] < small  # norms are still stacked


def test_replay_in_training_with_batch_norm_is_the_loop_too() -> None:
    model = subject(replay_model("mean", "layer", "batch norm")).train()
    tokens = some_tokens(model.spec)
    oracle = Oracle(model).logits(tokens)
    torch.testing.assert_close(model(tokens), oracle, rtol=1e-11, atol=1e-11)


@pytest.mark.plain  # as above
@pytest.mark.parametrize("kind", ["cumulative", "replay"])
def test_softmax_weights_start_as_the_mean(kind: str) -> None:
    one, mean = twins(
        tiny(residual=make("residual", kind, weights="softmax")), tiny(residual=make("residual", kind, weights="mean"))
    )
    assert_same_function(one, mean, mean)


@pytest.mark.plain  # as above
@pytest.mark.parametrize(
    "fields",
    [{"kind": "cumulative", "weights": w} for w in WEIGHTS[1:]]
    + [{"kind": "replay", "weights": w, "scope": s} for w, s in product(WEIGHTS, SCOPES)],
    ids=lambda fields: "-".join(fields.values()),
)
def test_at_depth_one_it_is_add(fields: dict[str, str]) -> None:
    one, add = twins(tiny(depth=1, residual=make("residual", **fields)), tiny(depth=1))
    assert_same_function(one, add, add)
    two, plain = twins(tiny(depth=2, residual=make("residual", **fields)), tiny(depth=2))
    tokens = some_tokens(two.spec)
    assert (two(tokens) - plain(tokens)).abs().max() > 1e-3  # and at depth two it is not


def by_hand(model: torch.nn.Module, tokens: torch.Tensor, alpha: Any) -> torch.Tensor:
    """x + alpha f(x) at every site, with the oracle's branches; alpha is asked for each site's index and stream."""
    oracle = Oracle(model)
    x = model.embedding.weight[tokens]
    for layer in range(model.spec.depth):
        q, k = oracle.project(layer, oracle.norm(layer, "attention", x))
        P = oracle.softmax(q @ k.transpose(-1, -2) / oracle.dk**0.5)
        x = x + alpha(2 * layer, x) * oracle.attention(layer, x, P)
        x = x + alpha(2 * layer + 1, x) * oracle.feedforward(layer, x)
    return oracle.linear(model.head, oracle._norm(model.final_norm, x))


@pytest.mark.plain  # as above
def test_scale_is_its_formula() -> None:
    model = subject(tiny(residual=make("residual", "scale", alpha=0.3)))
    assert_same_function(model, lambda tokens: by_hand(model, tokens, lambda *_: 0.3))


@pytest.mark.plain  # as above
def test_rezero_is_its_formula() -> None:
    model = subject(tiny(residual=make("residual", "rezero")))
    assert_same_function(model, lambda tokens: by_hand(model, tokens, lambda site, _: model.residual.alpha[site]))


@pytest.mark.plain  # as above
def test_rezero_starts_as_the_identity() -> None:
    model = tiny(residual=make("residual", "rezero"), placement=make("placement", "none")).build().double()
    tokens = some_tokens(model.spec)
    assert torch.equal(model(tokens), model.head(model.embedding(tokens)))
    found = gradients(model, model(tokens))
    assert (found["residual.alpha"].abs() > 0).all()
    assert all((g == 0).all() for name, g in found.items() if name.startswith("layers."))


@pytest.mark.plain  # as above
@pytest.mark.parametrize("width", ["scalar", "vector"])
def test_gate_is_its_formula(width: str) -> None:
    model = subject(tiny(residual=make("residual", "gate", width=width)))

    def alpha(site: int, x: torch.Tensor) -> torch.Tensor:
        z = torch.einsum("bsd,gd->bsg", x, model.residual.weight[site]) + model.residual.bias[site]
        return 1 / (1 + torch.exp(-z))

    assert_same_function(model, lambda tokens: by_hand(model, tokens, alpha))


@pytest.mark.plain  # as above
def test_gate_starts_at_one_half() -> None:
    one, half = twins(tiny(residual=make("residual", "gate")), tiny(residual=make("residual", "scale", alpha=0.5)))
    assert_same_function(one, half, half)


@pytest.mark.parametrize("case", ["unequal weights", "unequal terms"])
def test_unlike_problems_are_not_folded_into_one_call(case: str) -> None:
    """A fold computes all layers with the first one's weight and number of terms: here that would be another model."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 1, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    if case == "unequal weights":
        terms = [([q[0]], [k[0]], [0.5]), ([q[1]], [k[1]], [2.0])]
    else:
        terms = [([q[0]], [k[0]], [0.5]), ([*q], [*k], [0.5, 0.5])]
    problems = [
        problem_of(queries, keys, v[i], weights, causal=True) for i, (queries, keys, weights) in enumerate(terms)
    ]
    together = solve_many(problems, v, "auto")
    alone = torch.stack([solve(with_value(p, value)) for p, value in zip(problems, v, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)
