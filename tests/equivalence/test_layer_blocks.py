"""Blocks are their formulas, one site after another; and what they do not allow is refused with the reason."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from oracle import Oracle
from torch import Tensor

from addnorm import preset
from addnorm.bias import Biases
from addnorm.block import BlockSpec, BranchPlan, SitePlan, sequence
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.reduction import Reduction
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import rounding, some_tokens, subject

pytestmark = pytest.mark.plain  # shapes of the same models are checked in tests/contracts


def tiny(**changes: Any) -> ModelSpec:
    return shrunk(preset("llama", bias=True, **changes), depth=2)


class ByHand(Oracle):
    """Models whose layers are not attention, then feed-forward."""

    def logits(self, tokens: Tensor) -> Tensor:
        x, self.tokens = self.model.embedding.weight[tokens], tokens
        patterns: list[Tensor] = []
        for layer in range(self.L):
            patterns.append(self.pattern(layer, x))
            x = getattr(self, self.spec.block.kind)(layer, x, patterns)
        return self.linear(self.model.head, self._norm(self.model.final_norm, x))

    def pattern(self, layer: int, x: Tensor) -> Tensor:
        if self.spec.block.kind == "macaron":
            x = x + self.spec.block.before * self.before(layer, x)
        q, k = self.project(layer, self.norm(layer, "attention", x))
        return self.softmax(q @ k.transpose(-1, -2) / self.dk**0.5)

    def parallel(self, layer: int, x: Tensor, patterns: list[Tensor]) -> Tensor:
        return x + self.both(layer, x, patterns) + sum(self.both(i, x, patterns) for i in self.again(layer))

    def both(self, layer: int, x: Tensor, patterns: list[Tensor]) -> Tensor:
        return self.attention(layer, x, patterns[layer]) + self.feedforward(layer, x)

    def macaron(self, layer: int, x: Tensor, patterns: list[Tensor]) -> Tensor:
        y = self.until_last(layer, x, patterns)
        replayed = sum(self.last(i, self.until_last(i, x, patterns)) for i in self.again(layer))
        return y + self.last(layer, y) + replayed

    def until_last(self, layer: int, x: Tensor, patterns: list[Tensor]) -> Tensor:
        x = x + self.spec.block.before * self.before(layer, x)
        return x + self.attention(layer, x, patterns[layer])

    def token_tables(self, layer: int, x: Tensor, patterns: list[Tensor]) -> Tensor:
        x = x + self.attention(layer, x, patterns[layer])
        x = x + self.feedforward(layer, x)
        body = self.model.layers[layer].table.body
        gate = torch.sigmoid(self.norm(layer, "table", x) @ body.gate.weight.T)
        return x + self.spec.block.scale * (gate * body.table.weight[self.tokens]) @ body.out.weight.T

    def last(self, layer: int, x: Tensor) -> Tensor:
        return self.spec.block.after * self.feedforward(layer, x)

    def before(self, layer: int, x: Tensor) -> Tensor:
        body = self.model.layers[layer].before.body
        h = self.norm(layer, "before", x)
        gate = self.linear(body.gate, h)
        return self.linear(body.down, gate * torch.sigmoid(gate) * self.linear(body.up, h))

    def again(self, layer: int) -> range:
        return range(layer if self.spec.residual.kind == "replay" else 0)


class OneNorm(ByHand):
    """Parallel branches that read one norm."""

    def norm(self, layer: int, branch: str, x: Tensor) -> Tensor:
        return super().norm(layer, "attention", x)


BLOCKS = [
    {"kind": "parallel", "norms": "one"},
    {"kind": "parallel", "norms": "two"},
    {"kind": "macaron", "before": 0.25, "after": 0.75},
]


@pytest.mark.parametrize("residual", ["add", "replay"])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: "-".join(map(str, block.values())))
def test_a_block_is_its_formula(block: dict[str, Any], residual: str) -> None:
    model = subject(tiny(block=block, residual=residual))
    tokens = some_tokens(model.spec)
    oracle = (OneNorm if block.get("norms") == "one" else ByHand)(model)
    with torch.no_grad():
        assert (model(tokens) - oracle.logits(tokens)).abs().max() <= rounding(model, tokens)


def test_token_tables_are_their_formula_and_are_not_replayed() -> None:
    model = subject(tiny(block={"kind": "token_tables", "entries": 5, "scale": 0.7}))
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        assert (model(tokens) - ByHand(model).logits(tokens)).abs().max() <= rounding(model, tokens)
    with pytest.raises(InputError, match="block: expected branches that read the stream alone with residual 'replay'"):
        tiny(block="token_tables", residual="replay")
    with pytest.raises(InputError, match="entries: expected"):
        tiny(block={"kind": "token_tables", "entries": 0})


def names(model: Transformer) -> set[str]:
    return {name for name, _ in model.named_parameters()}


def test_parallel_branches_have_the_parameters_of_sequential_ones_and_start_equal() -> None:
    one, two, plain = (
        tiny(block=block).build(seed=4) for block in ({"kind": "parallel", "norms": "one"}, "parallel", "sequential")
    )
    assert names(two) == names(plain)
    assert {name.removeprefix(f"layers.{layer}.") for layer in range(2) for name in names(plain) - names(one)} >= {
        "feedforward.input_norm.weight"
    }
    assert all(torch.equal(value, plain.state_dict()[name]) for name, value in two.state_dict().items())


def test_the_stream_is_normed_once_after_parallel_branches() -> None:
    model = tiny(block="parallel", placement="post").build()
    normed = [name for name in names(model) if "stream_norm.weight" in name]
    assert sorted(normed) == [f"layers.{layer}.feedforward.stream_norm.weight" for layer in range(2)]


def test_initial_values_count_the_outputs_that_add_up() -> None:
    stds = {
        kind: subject_std(tiny(block=kind, init_branch="depth", init_std=0.2))
        for kind in ("sequential", "parallel", "macaron")
    }
    assert stds == pytest.approx({"sequential": 0.1, "parallel": 0.1, "macaron": 0.2 / 6**0.5}, rel=1e-6)


def subject_std(spec: ModelSpec) -> float:
    return float(spec.build().layers[0].feedforward.body.down.std)


@pytest.mark.parametrize("block", ["parallel", "gau"])
@pytest.mark.parametrize("residual", ["cross", "dynamic_dense"])
def test_separate_reads_are_refused_where_one_input_serves_more(block: str, residual: str) -> None:
    reason = ROOMS["block"].make(block).refuses_separate_reads()
    with pytest.raises(InputError, match=rf"with block '{block}', because {reason}, got '{residual}'"):
        preset("llama", block=block, residual=residual, heads=1)


@dataclass(frozen=True, kw_only=True)
class Late(BlockSpec):
    """Attention alone in the first layer."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        attention, feedforward = sequence(
            BranchPlan(name="attention", body="attention"), BranchPlan(name="feedforward", body="feedforward")
        )
        return (attention, feedforward) if layer else (attention,)


@dataclass(frozen=True, kw_only=True)
class Twice(Late):
    """Two branches of one name."""

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        return sequence(*(BranchPlan(name="attention", body="attention") for _ in range(2)))


@dataclass(frozen=True, kw_only=True)
class Attending(Late):
    """Two attentions at one site."""

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        branches = tuple(BranchPlan(name=name, body="attention") for name in ("one", "other"))
        return (SitePlan(role="attention", branches=branches),)


def test_layers_may_differ() -> None:
    spec = shrunk(ModelSpec(block=Late(), bias=Biases.all(True)), depth=3)
    assert [(place.layer, place.role) for place in spec.places[:3]] == [
        *((0, "attention"), (1, "attention"), (1, "feedforward"))
    ]
    assert spec.attention_shape.depth == 3
    tokens = some_tokens(spec)
    model = subject(spec)
    with torch.no_grad():
        cache, full = model.new_cache(), model(tokens)
        parts = [model(part, cache=cache) for part in tokens.split([4, 1, 4], dim=1)]
    assert (torch.cat(parts, dim=1) - full).abs().max() <= rounding(model, tokens)
    with pytest.raises(InputError, match=r"block: expected the same branches in every layer with residual 'replay'"):
        shrunk(ModelSpec(block=Late(), residual=ROOMS["residual"].make("replay")))


def test_what_no_layer_can_be_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"expected branches with different names in layer 0 .*\['attention', 'attention'\]"
    ):
        ModelSpec(block=Twice())
    with pytest.raises(InputError, match=r"expected at most one branch that attends per site, got two in layer 0"):
        ModelSpec(block=Attending())


def test_values_and_replay_are_refused_before_anything_is_built() -> None:
    with pytest.raises(InputError, match=r"^values: expected 'own' with residual 'replay', because .* got 'first'\."):
        preset("base", residual="replay", values="first")


@pytest.mark.parametrize(("name", "parameters"), [("gpt_j", 6_050_882_784), ("gpt_neox", 20_554_567_680)])
def test_the_parallel_presets_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = preset(name).build()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_logits_are_capped() -> None:
    plain, capped = (subject(tiny(logit_cap=cap)) for cap in (None, 0.5))
    tokens = some_tokens(plain.spec)
    with torch.no_grad():
        logits, found = plain(tokens), capped(tokens)
    assert torch.equal(found, 0.5 * torch.tanh(logits / 0.5))
    assert found.abs().max() < 0.5 < logits.abs().max()
    with pytest.raises(InputError, match=r"^logit_cap: expected a positive number or null, got 0"):
        tiny(logit_cap=0.0)


@pytest.mark.parametrize("activation", ["geglu_tanh", "squared_relu"])
def test_activations_are_their_formulas(activation: str) -> None:
    body = subject(tiny(activation=activation)).layers[0].feedforward.body
    x = torch.linspace(-2, 2, 64, dtype=torch.float64).view(2, 32)
    up = x @ body.up.weight.T + body.up.bias
    if activation == "squared_relu":
        inside = torch.where(up > 0, up**2, 0.0)
    else:
        gate = x @ body.gate.weight.T + body.gate.bias
        inside = up * 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
    expected = inside @ body.down.weight.T + body.down.bias
    assert torch.allclose(body(x), expected, rtol=1e-12, atol=1e-12)
