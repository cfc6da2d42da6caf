"""Gated attention units keep the laws with every mechanism."""

import pytest
import torch
from siblings import mechanisms, name
from torch.nn import functional as F
from tracing import compiles, exports

from addnorm import preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS, Spec
from addnorm.model.architecture import Dropout
from addnorm.model.gau import Gau
from addnorm.model.presets import ROOM_OF_FIELD
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS

FIELD = {room: field for field, room in ROOM_OF_FIELD.items()}
MECHANISMS = mechanisms()


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
@pytest.mark.parametrize("law", LAWS)
def test_units_keep_the_laws(normalisation: str, law: str) -> None:
    LAWS[law](units(normalisation))


# The normalisation meets what makes scores, patterns or positions; to norms and placements it is a unit's own affair.
EVERY = [(*mechanism, "softmax") for mechanism in MECHANISMS] + [
    (room, spec, "squared_relu") for room, spec in MECHANISMS if room in ("scores", "position", "residual", "bias")
]


@pytest.mark.parametrize(("room", "spec", "normalisation"), EVERY, ids=[f"{name(*m[:2])}-{m[2]}" for m in EVERY])
def test_units_keep_the_laws_with_every_mechanism(room: str, spec: Spec, normalisation: str) -> None:
    # One layer has none before it to replay.
    model = units(normalisation, depth=2 if spec.kind == "replay" else 1, **{FIELD[room]: spec})
    for law in (
        "keeps_shape_and_dtype",
        "has_finite_gradients",
        "is_causal",
        "ignores_padding",
        "decodes_with_a_cache",
    ):
        LAWS[law](model)


@pytest.mark.parametrize("placement", ROOMS["placement"].kinds())
@pytest.mark.parametrize("residual", ROOMS["residual"].kinds())
@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_the_preset_trains_with_every_residual_and_placement_and_with_dropout(
    normalisation: str, residual: str, placement: str
) -> None:
    gau, dropout = Gau(normalisation=normalisation, key_dim=8), Dropout.all(0.1)  # type: ignore[arg-type]
    spec = preset("gau_alpha", residual=residual, placement=placement, bias={"q": True, "k": True})
    spec = shrunk(spec, depth=2, gau=gau, dropout=dropout)
    assert (spec.residual.kind, spec.placement.kind, spec.dropout) == (residual, placement, dropout)
    model = spec.build().train()
    read = torch.arange(12).reshape(2, 6) % spec.vocab
    before = model(read)
    assert not torch.equal(before, model(read)), "dropout drops"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # ReZero's branches get a gradient once its numbers have left zero
        optimizer.zero_grad()
        F.cross_entropy(model(read).flatten(0, 1), read.flatten()).backward()
        optimizer.step()
    matrices = {name: p.grad for name, p in model.named_parameters() if p.dim() == 2}
    assert [
        name for name, grad in matrices.items() if grad is None or not grad.isfinite().all() or not grad.any()
    ] == []


@pytest.mark.compiled
@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_units_with_squared_relu_export_and_compile(position: str) -> None:
    spec = units("squared_relu", depth=1, position=ROOMS["position"].make(position))
    exports(spec)
    compiles(spec)


def units(normalisation: str, **changes: object) -> ModelSpec:
    spec = ModelSpec(heads=1, gau=Gau(normalisation=normalisation), bias=Biases.all(True))  # type: ignore[arg-type]
    return shrunk(spec, **{"depth": 2} | changes)
