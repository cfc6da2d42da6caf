"""Gated attention units keep the laws, train and export."""

from dataclasses import replace

import pytest
import torch
from siblings import calls_every_annotated_function
from torch.nn import functional as F
from tracing import compiles, exports

from addnorm import preset
from addnorm.bias import Biases
from addnorm.block.gau import Gau
from addnorm.catalogue import ROOMS
from addnorm.model.architecture import Dropout
from addnorm.model.spec import ModelSpec
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS
from pairwise import pairwise
from sampled import sampled


@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_tensors_of_units_have_the_annotated_shapes(normalisation: str) -> None:
    calls_every_annotated_function(units(normalisation))


@pytest.mark.plain
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("normalisation", ["softmax", "squared_relu"])
def test_units_keep_the_laws(normalisation: str, law: str) -> None:
    LAWS[law](units(normalisation))


# Units with every other mechanism keep the laws in `test_combinations`. Here every pair of the three trains.
@pytest.mark.plain  # shapes are checked there and in the laws above
@pytest.mark.parametrize(
    ("placement", "residual", "normalisation"),
    sampled(7, pairwise(ROOMS["placement"].kinds(), ROOMS["residual"].kinds(), ("softmax", "squared_relu"))),
)
def test_the_preset_trains_with_every_residual_and_placement_and_with_dropout(
    normalisation: str, residual: str, placement: str
) -> None:
    gau, dropout = Gau(normalisation=normalisation, key_dim=8), Dropout.all(0.1)  # type: ignore[arg-type]
    joined = ROOMS["residual"].make(residual)
    if any(getattr(ROOMS["placement"].make(placement).sockets(), socket) for socket in joined.refused_sockets()):
        placement = "pre"
    if residual == "none" and normalisation == "squared_relu":
        placement = "pre"  # without a sum, squares of small numbers go down to exactly zero unless a norm reads them
    if joined.separate_reads:
        joined = replace(joined, reads="one")
    spec = preset("gau_alpha", residual=joined, placement=placement, bias={"q": True, "k": True})
    spec = shrunk(spec, depth=2, block=gau, dropout=dropout)
    assert (spec.residual.kind, spec.placement.kind, spec.dropout) == (residual, placement, dropout)
    model = spec.build().train()
    model.residual.advance(10**6)  # at step 0 a schedule keeps every branch out
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


@pytest.mark.soak  # units with other positions are traced in `test_traced`
@pytest.mark.compiled
@pytest.mark.parametrize("position", sampled(2, ["rope", "alibi"]))
def test_units_with_squared_relu_export_and_compile(position: str) -> None:
    spec = units("squared_relu", depth=1, position=ROOMS["position"].make(position))
    exports(spec)
    compiles(spec, "aot_eager")


def units(normalisation: str, **changes: object) -> ModelSpec:
    spec = ModelSpec(heads=1, block=Gau(normalisation=normalisation), bias=Biases.all(True))  # type: ignore[arg-type]
    return shrunk(spec, **{"depth": 2} | changes)
