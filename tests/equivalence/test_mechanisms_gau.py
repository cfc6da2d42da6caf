"""The gated attention unit against mechanisms.md section 6, written out with full matrices; and what it refuses."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from comparing import assert_same_function, make
from torch import Tensor
from torch.nn import functional as F

from addnorm import preset
from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.block.sequential import Sequential
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import rounding, some_tokens, subject

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts

KEY_DIM = 8


def tiny(normalisation: str = "softmax", **changes: Any) -> ModelSpec:
    gau = Gau(normalisation=normalisation, key_dim=KEY_DIM)
    return shrunk(replace(preset("gau_alpha"), block=gau), **{"depth": 2, "block": gau} | changes)


class Plain:
    """The model by formula: loops over units, one unit after another, every matrix held."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.w, self.spec = model, dict(model.named_parameters()), model.spec

    def logits(self, tokens: Tensor) -> Tensor:
        x = self.w["embedding.weight"][tokens]
        scores: Tensor | float = 0.0
        for layer in range(self.spec.depth):
            for name in ("first", "second"):
                unit = f"layers.{layer}.{name}."
                y, own = self.unit(unit + "body.", x, scores)
                scores = scores + own if self.spec.scores.kind == "sum" else 0.0
                x = self.rms(x + y, self.w[unit + "stream_norm.weight"])
        return x @ self.w["embedding.weight"].T

    def unit(self, name: str, x: Tensor, before: Tensor | float) -> tuple[Tensor, Tensor]:
        A, own = self.pattern(name, x, before)
        return self.applied(name, x, A), own

    def applied(self, name: str, x: Tensor, A: Tensor) -> Tensor:
        e = self.spec.hidden
        h = x @ self.w[name + "input.weight"].T + self.w.get(name + "input.bias", 0.0)
        u, v = (h * torch.sigmoid(h))[..., :e], (h * torch.sigmoid(h))[..., e : 2 * e]
        return (u * (A @ v)) @ self.w[name + "output.weight"].T + self.w.get(name + "output.bias", 0.0)

    def pattern(self, name: str, x: Tensor, before: Tensor | float) -> tuple[Tensor, Tensor]:
        e = self.spec.hidden
        h = x @ self.w[name + "input.weight"].T + self.w.get(name + "input.bias", 0.0)
        h = h * torch.sigmoid(h)
        z = h[..., 2 * e :]
        q = z * self.w[name + "query_scale"] + self.w.get(name + "qk_bias.q", 0.0)
        k = z * self.w[name + "key_scale"] + self.w.get(name + "qk_bias.k", 0.0)
        own = self.rope(q) @ self.rope(k).mT / math.sqrt(KEY_DIM)
        s = x.shape[1]
        seen = torch.ones(s, s).tril().bool() if self.spec.objective == "causal" else torch.ones(s, s).bool()
        if self.spec.block.normalisation == "softmax":
            A = (own + before).masked_fill(~seen, -math.inf).softmax(-1)
        else:
            A = (own + before).clamp(min=0) ** 2 * seen / seen.sum(-1, keepdim=True)
        return A, own

    def rope(self, x: Tensor) -> Tensor:
        angles = torch.outer(
            torch.arange(x.shape[1]).double(), 10_000.0 ** (-torch.arange(0, KEY_DIM, 2).double() / KEY_DIM)
        )
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)

    def rms(self, x: Tensor, gain: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.spec.norm.eps) * gain


@pytest.mark.parametrize("objective", ["causal", "masked"])
@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
@pytest.mark.parametrize("bias", [Biases(), Biases(q=True, k=True), Biases.all(True, head=False, norm=False)])
def test_a_unit_is_its_formula(objective: str, normalisation: str, bias: Biases) -> None:
    model = subject(tiny(normalisation, objective=objective, bias=bias))
    assert_same_function(model, Plain(model).logits)


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_every_unit_is_a_layer_of_the_score_residual(normalisation: str) -> None:
    model = subject(tiny(normalisation, scores=make("scores", "sum")))
    assert_same_function(model, Plain(model).logits)
    assert [model.scores.terms(unit) for unit in range(4)] == [1, 2, 3, 4]


def test_offsets_that_are_off_are_those_of_zero() -> None:
    off, on = subject(tiny()), subject(tiny(bias=Biases(q=True, k=True)))
    on.load_state_dict(
        {k: torch.zeros_like(v) if "qk_bias" in k else off.state_dict()[k] for k, v in on.state_dict().items()}
    )
    tokens = some_tokens(off.spec)
    with torch.no_grad():
        assert (on(tokens) - off(tokens)).abs().max() <= rounding(off, tokens)


def test_a_pair_stands_for_the_branches_of_one_layer() -> None:
    """The hidden-stream residual has a number per site: two per layer, as ever."""
    model = tiny(residual=make("residual", "rezero")).build()
    assert model.residual.alpha.numel() == 2 * model.spec.depth
    cumulative = subject(tiny(residual=make("residual", "cumulative")))
    calls: list[str] = []
    write = cumulative.residual.write
    cumulative.residual.write = lambda state, y, site: calls.append(site.role) or write(state, y, site)
    cumulative(some_tokens(cumulative.spec))
    assert calls == ["attention", "feedforward"] * 2


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_dropout_drops_attention_and_branches(normalisation: str) -> None:
    spec = tiny(normalisation)
    for place in ("attention", "branch", "embedding"):
        model = replace(spec, dropout=replace(spec.dropout, **{place: 0.5})).build().train()
        tokens = some_tokens(spec)
        assert not torch.equal(model(tokens), model(tokens))
        model.eval()
        assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_the_offset_of_the_keys_matters_unless_a_softmax_takes_it_out(normalisation: str) -> None:
    """Without rotation it adds a constant to each row of scores: softmax does not see it, relu² does."""
    model = subject(tiny(normalisation, bias=Biases(q=True, k=True), position=make("position", "none")))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
        for layer in model.layers:
            for branch in layer.branches():
                branch.body.qk_bias.k.add_(1.0)
        gap = (model(tokens) - before).abs().max().item()
        allowed += rounding(model, tokens)
    assert (gap <= allowed) is (normalisation == "softmax")
    assert gap <= allowed or gap > 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 4}, "a gated attention unit: expected heads 1, got 4. Set heads: 1"),
        ({"activation": "gelu"}, "expected activation 'swiglu', because its gate is SiLU, got 'gelu'"),
        ({"bias": {"up": True}}, "bias.up and bias.v are one switch, got True and False"),
        ({"bias": {"o": True}}, "bias.down and bias.o are one switch, got False and True"),
        ({"gau": {"key_dim": 0}}, "gau.key_dim: expected a whole number of at least 1, got 0"),
        ({"gau": {"key_width": 8}}, "block 'gau' has no field 'key_width'.*Known: key_dim, normalisation"),
    ],
)
def test_what_a_unit_has_no_place_for_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        preset("gau_alpha", **changes)


class Replayed(Plain):
    """Post-norm units whose second of a pair is followed by that of every earlier pair, with the pattern it had."""

    def logits(self, tokens: Tensor) -> Tensor:
        x, patterns = self.w["embedding.weight"][tokens], {}
        for layer in range(self.spec.depth):
            first, second = (f"layers.{layer}.{name}." for name in ("first", "second"))
            patterns[first], _ = self.pattern(first + "body.", x, 0.0)
            y = self.rms(x + self.applied(first + "body.", x, patterns[first]), self.w[first + "stream_norm.weight"])
            patterns[second], _ = self.pattern(second + "body.", y, 0.0)
            own = self.applied(second + "body.", y, patterns[second])
            earlier = [self.earlier(i, x, y, patterns) for i in range(layer)]
            x = self.rms(y + self.joined(layer, [*earlier, own]), self.w[second + "stream_norm.weight"])
        return x @ self.w["embedding.weight"].T

    def earlier(self, i: int, x: Tensor, y: Tensor, patterns: dict[str, Tensor]) -> Tensor:
        first, second = (f"layers.{i}.{name}." for name in ("first", "second"))
        z = y
        if self.spec.residual.scope == "layer":
            z = x + self.applied(first + "body.", x, patterns[first])
        return self.applied(second + "body.", z, patterns[second])

    def joined(self, layer: int, said: list[Tensor]) -> Tensor:
        weights = torch.ones(len(said), dtype=torch.float64)
        if self.spec.residual.weights == "mean":
            weights = weights / len(said)
        if self.spec.residual.weights == "softmax" and layer > 0:
            weights = self.w[f"residual.mix.{layer - 1}"].softmax(0)
        return (torch.stack(said, -1) * weights).sum(-1)


@pytest.mark.parametrize("scope", ["layer", "feedforward"])
@pytest.mark.parametrize("weights", ["sum", "mean", "softmax"])
@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_replayed_units_keep_their_patterns_and_nothing_else(normalisation: str, weights: str, scope: str) -> None:
    residual = make("residual", "replay", weights=weights, scope=scope)
    model = subject(tiny(normalisation, depth=3, residual=residual, bias=Biases(q=True, k=True)))
    assert_same_function(model, Replayed(model).logits)


def test_a_preset_takes_its_settings_as_a_mapping() -> None:
    squared = Gau(normalisation="squared_relu")
    assert preset("gau_alpha", block={"kind": "gau", "normalisation": "squared_relu"}).block == squared
    # As in version 0.1:
    assert preset("gau_alpha", gau={"normalisation": "squared_relu"}).block == squared
    assert preset("base", heads=1, kv_heads=None, gau={"key_dim": 64}).block == Gau(key_dim=64)
    assert preset("gau_alpha", gau=None).block == Sequential()
    with pytest.raises(InputError, match=r"gau: expected it or block, got both"):
        preset("gau_alpha", gau={}, block="gau")


def test_training_in_bfloat16_autocast_gives_finite_gradients() -> None:
    for normalisation in ("softmax", "squared_relu"):
        model = tiny(normalisation, bias=Biases.all(True)).build()
        tokens = some_tokens(model.spec)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(tokens)
        F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
