"""Gated attention units keep the laws with every mechanism."""

import pytest
from siblings import mechanisms, name

from addnorm.bias import Biases
from addnorm.blocks.contract import shrunk
from addnorm.blocks.gau import Gau
from addnorm.blocks.laws import LAWS
from addnorm.blocks.presets import ROOM_OF_FIELD
from addnorm.blocks.spec import ModelSpec
from addnorm.catalogue import Spec
from addnorm.errors import InputError

FIELD = {room: field for field, room in ROOM_OF_FIELD.items()}
MECHANISMS = mechanisms()


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
@pytest.mark.parametrize("law", LAWS)
def test_units_keep_the_laws(normalisation: str, law: str) -> None:
    LAWS[law](units(normalisation))


@pytest.mark.parametrize(("room", "spec"), MECHANISMS, ids=[name(*m) for m in MECHANISMS])
@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_units_keep_the_laws_with_every_mechanism(room: str, spec: Spec, normalisation: str) -> None:
    model = units(normalisation, depth=1, **{FIELD[room]: spec})
    if spec.kind == "replay":
        with pytest.raises(InputError, match="gated attention units have none"):
            model.build()
        return
    for law in (
        "keeps_shape_and_dtype",
        "has_finite_gradients",
        "is_causal",
        "ignores_padding",
        "decodes_with_a_cache",
    ):
        LAWS[law](model)


def units(normalisation: str, **changes: object) -> ModelSpec:
    spec = ModelSpec(heads=1, gau=Gau(normalisation=normalisation), bias=Biases.all(True))  # type: ignore[arg-type]
    return shrunk(spec, **{"depth": 2} | changes)
