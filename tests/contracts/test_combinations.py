"""Mechanisms keep the laws together, not only alone.

Of all choices below every pair meets in some model: each sibling of a room with each sibling of every other room, with
each kind of heads or units (and their activation), depth and set of biases. A sibling takes its settings in turn.
"""

from collections import Counter
from typing import Any

import pytest
from siblings import mechanisms, settings_of, siblings

from addnorm.bias import Biases
from addnorm.catalogue import MECHANISM_ROOMS
from addnorm.model.gau import Gau
from addnorm.model.presets import ROOM_OF_FIELD
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS
from pairwise import pairwise

FIELD = {room: field for field, room in ROOM_OF_FIELD.items()}
BODIES: dict[str, dict[str, Any]] = {
    "one key head": {"heads": 4, "kv_heads": 1, "activation": "gelu"},
    "grouped heads": {"heads": 4, "kv_heads": 2, "activation": "relu"},
    "a key for each head": {"heads": 4, "kv_heads": 4, "activation": "swiglu"},
    "softmax units": {"gau": Gau(normalisation="softmax", key_dim=8), "heads": 1, "kv_heads": None},
    "squared ReLU units": {"gau": Gau(normalisation="squared_relu", key_dim=8), "heads": 1, "kv_heads": None},
}
BIASES = {
    "all": Biases.all(True),
    "queries and keys": Biases(q=True, k=True),
    "all others": Biases.all(True, q=False, k=False),
}
MODELS: dict[str, tuple[object, ...]] = {
    **{room: [kind for _, kind in siblings(room)] for room in MECHANISM_ROOMS},  # type: ignore[dict-item]
    "body": tuple(BODIES),
    "biases": tuple(BIASES),
    "depth": (1, 2, 3),
    "tied": (False, True),
    "init_branch": ("same", "depth"),
}  # fmt: skip


def models() -> list[tuple[str, ModelSpec, bool]]:
    """Name and spec of each model; true if it has a choice that none before it has."""
    turns: Counter[tuple[str, object]] = Counter()
    known: set[tuple[str, object]] = set()
    made = []
    for row in pairwise(*MODELS.values()):  # type: ignore[arg-type]
        chosen: dict[str, Any] = dict(zip(MODELS, row, strict=True))
        parts: dict[str, Any] = {}
        for room in MECHANISM_ROOMS:
            settings = settings_of(room, chosen[room])
            parts[FIELD[room]] = settings[turns[room, chosen[room]] % len(settings)]
            turns[room, chosen[room]] += 1
        for name in ("tied", "init_branch"):
            parts[name] = chosen[name]
        depth = chosen["depth"]
        if chosen["norm"] == "batch" and chosen["body"] == "squared ReLU units":
            depth = 1  # running statistics of no batch hold nothing back: each unit's output is the sixth power of its input
        if chosen["residual"] == "replay":
            depth = max(depth, 2)  # one layer has none before it to replay
        parts |= {"depth": depth, "bias": BIASES[chosen["biases"]]} | BODIES[chosen["body"]]
        made.append(("-".join(map(str, row)), shrunk(ModelSpec(), **parts), not known.issuperset(chosen.items())))
        known.update(chosen.items())
    return made


COMBINED = models()
every_combination = pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec, _ in COMBINED])


# What joining two mechanisms can spoil; the other laws look at each mechanism by itself.
@pytest.mark.plain  # shapes are checked in the law below
@pytest.mark.parametrize("law", ["keeps_shape_and_dtype", "has_finite_gradients", "is_causal", "ignores_padding"])
@every_combination
def test_mechanisms_keep_the_laws_together(spec: ModelSpec, law: str) -> None:
    LAWS[law](spec)


# Every choice with the shape checker, in the law that passes through full and cached attention; every pair without it.
@pytest.mark.parametrize(
    "spec", [pytest.param(spec, id=name, marks=() if new else pytest.mark.plain) for name, spec, new in COMBINED]
)
def test_mechanisms_decode_with_a_cache_together(spec: ModelSpec) -> None:
    LAWS["decodes_with_a_cache"](spec)


def test_every_setting_takes_part() -> None:
    taking_part = {(room, getattr(spec, FIELD[room])) for _, spec, _ in COMBINED for room in MECHANISM_ROOMS}
    assert taking_part == set(mechanisms())
