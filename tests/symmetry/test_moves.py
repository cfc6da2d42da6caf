"""Finite moves leave the outputs equal at inputs and lengths that the analysis did not use."""

import pytest
import torch
from torch import nn

import addnorm
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.symmetry import Symmetries

SIZES = {"vocab": 11, "width": 4, "depth": 1, "heads": 1, "kv_heads": 1, "hidden": 3, "max_seq": 16}
TOKENS = torch.arange(18).reshape(2, 9) % 11
LONGER = torch.randint(0, 11, (3, 13), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return generic(addnorm.preset("llama", **SIZES).build(seed=0).eval(), torch.float64)


@pytest.fixture(scope="module")
def found(model: nn.Module) -> Symmetries:
    return addnorm.symmetries(model, TOKENS, points=1)


@torch.no_grad()
def test_every_direction_at_another_length(model: nn.Module, found: Symmetries) -> None:
    expected = model(LONGER)
    for family in found.families:
        for index in range(family.size):
            moved, difference = found.move(family.name, index, amount=1.0)
            assert difference < 1e-9
            assert any(
                not torch.equal(one, other) for one, other in zip(model.parameters(), moved.parameters(), strict=True)
            )
            assert float((moved(LONGER) - expected).abs().max()) < 1e-9 * float(expected.std())


@torch.no_grad()
def test_move_of_a_rotation_is_large(model: nn.Module, found: Symmetries) -> None:
    moved, _ = found.move("basis of the stream", 0, amount=1.5)
    before, after = model.get_parameter("embedding.weight"), moved.get_parameter("embedding.weight")
    assert float((before - after).norm()) > 0.3 * float(before.norm())


def test_unknown_family_and_index(found: Symmetries) -> None:
    with pytest.raises(addnorm.errors.UnknownName, match="no family 'basis'"):
        found.move("basis")
    with pytest.raises(addnorm.errors.InputError, match="expected an index below 6"):
        found.move("basis of the stream", 6)
