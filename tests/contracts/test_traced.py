"""Every sibling in every setting exports and compiles, to the same numbers."""

from typing import Any

import pytest
from siblings import mechanisms
from tracing import compiles, exports

from addnorm import preset
from addnorm.bias import Biases
from addnorm.catalogue import MECHANISM_ROOMS
from addnorm.model.presets import ROOM_OF_FIELD
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk

pytestmark = pytest.mark.compiled

FIELD = {room: field for field, room in ROOM_OF_FIELD.items()}


def traced() -> list[ModelSpec]:
    """As few models as have every mechanism in every setting: tracing takes seconds, whatever a model is made of."""
    by_room = {room: [spec for _, spec in mechanisms(room)] for room in MECHANISM_ROOMS}
    return [
        shrunk(
            ModelSpec(),
            depth=2,
            kv_heads=2,
            bias=Biases.all(True),
            **{FIELD[room]: settings[turn % len(settings)] for room, settings in by_room.items()},
        )
        for turn in range(max(map(len, by_room.values())))
    ]


def mechanisms_of(spec: ModelSpec) -> dict[str, Any]:
    return {room: getattr(spec, field) for room, field in FIELD.items()}


def name(spec: ModelSpec) -> str:
    return "-".join(mechanism.kind for mechanism in mechanisms_of(spec).values())


@pytest.mark.parametrize("spec", traced(), ids=name)
@pytest.mark.parametrize("law", [exports, compiles], ids=lambda law: law.__name__)
def test_mechanisms_are_traced(spec: ModelSpec, law: Any) -> None:
    law(spec)


def test_every_setting_is_traced() -> None:
    assert {item for spec in traced() for item in mechanisms_of(spec).items()} == set(mechanisms())


# The rest of the presets differ from these in a score or stream residual alone, and every one of those is traced above.
@pytest.mark.parametrize(
    ("preset_name", "depth"),
    [
        ("gpt2", 2),
        ("bert", 2),
        ("realformer", 2),
        ("v3m3_2", 3),
        ("gau_alpha", 2),
    ],  # v3m3_2 replays two layers in one product
)
def test_preset_exports_and_compiles(preset_name: str, depth: int) -> None:
    spec = shrunk(preset(preset_name), depth=depth)
    exports(spec)
    compiles(spec, "aot_eager")
