"""Mechanisms keep the laws together, not only alone."""

import random
from itertools import product

import pytest
from siblings import mechanisms, siblings

from addnorm.bias import Biases
from addnorm.catalogue import ROOMS, Spec
from addnorm.model.presets import ROOM_OF_FIELD
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk, tiny
from addnorm.testing.laws import LAWS

# What joining two mechanisms can spoil; the other laws look at each mechanism by itself.
TOGETHER = ("keeps_shape_and_dtype", "has_finite_gradients", "is_causal", "ignores_padding", "decodes_with_a_cache")
FIELD = {room: field for field, room in ROOM_OF_FIELD.items()}


def pairs(first: str, second: str) -> pytest.MarkDecorator:
    """Every sibling of the one room with every sibling of the other. Their other settings take part in the random models."""
    both = list(product(siblings(first), siblings(second)))
    made = [(ROOMS[a].make(one), ROOMS[b].make(other)) for (a, one), (b, other) in both]
    return pytest.mark.parametrize(("one", "other"), made, ids=[f"{one}-with-{other}" for (_, one), (_, other) in both])


def keep(spec: ModelSpec, laws: tuple[str, ...] = TOGETHER) -> None:
    for law in laws:
        LAWS[law](spec)


@pairs("residual", "placement")
def test_residual_with_placement(one: Spec, other: Spec) -> None:
    keep(tiny("residual", one, placement=other, depth=2), ("is_causal", "decodes_with_a_cache"))


@pairs("residual", "scores")
def test_residual_with_scores(one: Spec, other: Spec) -> None:
    keep(tiny("residual", one, scores=other, depth=2), ("has_finite_gradients", "decodes_with_a_cache"))


@pairs("scores", "position")
def test_scores_with_position(one: Spec, other: Spec) -> None:
    keep(tiny("scores", one, position=other, depth=2), ("ignores_padding", "decodes_with_a_cache"))


@pairs("bias", "position")
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_bias_with_position(one: Spec, other: Spec, kv_heads: int) -> None:
    keep(
        tiny("bias", one, position=other, kv_heads=kv_heads, depth=2), ("has_finite_gradients", "decodes_with_a_cache")
    )


def random_model(seed: int) -> ModelSpec:
    draw = random.Random(seed)
    parts: dict[str, object] = {field: draw.choice(mechanisms(room))[1] for room, field in FIELD.items()}
    heads = draw.choice((2, 4))
    qk = draw.random() < 0.5
    switches = {switch: draw.random() < 0.5 for switch in ("v", "o", "up", "down", "head", "norm")}
    return shrunk(
        ModelSpec(),
        **parts,
        bias=Biases(q=qk, k=qk, **switches),
        heads=heads,
        kv_heads=draw.choice([k for k in (1, 2, 4) if k <= heads]),
        depth=draw.choice((1, 2, 3)),
        activation=draw.choice(("gelu", "relu", "swiglu")),
        tied=draw.random() < 0.5,
        init_branch=draw.choice(("same", "depth")),
    )


@pytest.mark.parametrize("seed", range(24))
def test_a_random_model_keeps_the_laws(seed: int) -> None:
    keep(random_model(seed))
