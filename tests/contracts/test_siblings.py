"""Every sibling of every room keeps every law."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from siblings import calls_every_annotated_function, mechanisms, name, siblings

from addnorm import ModelSpec
from addnorm.catalogue import ROOMS, Spec
from addnorm.errors import InputError
from addnorm.placement import PlacementSpec
from addnorm.reduction import Reducible
from addnorm.testing.contract import check_mechanism, fields_are_documented, plain, spec_round_trips, tiny
from addnorm.testing.laws import LAWS
from addnorm.testing.reductions import reduces_as_declared

MECHANISMS = mechanisms()


def _class(room: str, kind: str) -> type[Spec]:
    cls: type[Spec] = ROOMS[room].spec_class(kind)
    return cls


def with_laws() -> Iterator[Any]:
    """Every mechanism with every law; all settings of a sibling but its first, and of these every other law in turn, are left
    to the thorough tests."""
    seen: set[tuple[str, str]] = set()
    for at, (room, spec) in enumerate(MECHANISMS):
        for place, law in enumerate(LAWS):
            is_left = (room, spec.kind) in seen or (at + place) % 2
            marks = [pytest.mark.thorough] if is_left else []
            yield pytest.param(room, spec, law, id=f"{name(room, spec)}-{law}", marks=marks)
        seen.add((room, spec.kind))


every_mechanism = pytest.mark.parametrize(("room", "spec"), MECHANISMS, ids=[name(*m) for m in MECHANISMS])


@every_mechanism
def test_its_tensors_have_the_annotated_shapes(room: str, spec: Spec) -> None:
    calls_every_annotated_function(tiny(room, spec, depth=2))


# The laws of one mechanism follow each other: they share a model.
@pytest.mark.plain
@pytest.mark.parametrize(("room", "spec", "law"), list(with_laws()))
def test_keeps_the_laws_of_models(room: str, spec: Spec, law: str) -> None:
    LAWS[law](tiny(room, spec, depth=2))  # three layers: in `test_combinations`, with every sibling


# The other laws that are not about order: in `test_combinations`, and of masked presets.
@pytest.mark.plain
@every_mechanism
def test_masked_models_leave_their_inputs_alone(room: str, spec: Spec) -> None:
    LAWS["leaves_inputs_alone"](tiny(room, spec, depth=2, objective="masked"))


@pytest.mark.plain  # no tensors, as in all below
@every_mechanism
def test_its_spec_is_plain_data_and_documented(room: str, spec: Spec) -> None:
    fields_are_documented(room, spec)
    spec_round_trips(room, spec)


@pytest.mark.plain  # shapes are checked above
def test_the_check_that_plugins_pass_accepts_it() -> None:
    # The laws themselves are tested above, one by one; here only that their composition lets a good sibling through.
    for room in ROOMS:
        first = next((spec for own, spec in MECHANISMS if own == room), None)
        if first is not None:
            check_mechanism(room, first)


@pytest.fixture(scope="module")
def started() -> dict[str, torch.Tensor]:
    """The initial values of a model of default mechanisms."""
    return tiny("residual", ModelSpec().residual).build(seed=5).state_dict()


@pytest.mark.plain
@every_mechanism
def test_it_does_not_shift_the_start_of_others(room: str, spec: Spec, started: dict[str, torch.Tensor]) -> None:
    mine, plain = tiny(room, spec).build(seed=5).state_dict(), started
    shared = [key for key, value in mine.items() if key in plain and plain[key].shape == value.shape]
    assert len(shared) >= (4 if spec.kind == "gau" else 20)  # units share no matrix with other layers
    gain = spec.initial_gain(6) if isinstance(spec, PlacementSpec) else 1.0
    for key in shared:
        scaled = torch.allclose(mine[key], gain * plain[key], rtol=1e-6, atol=0)  # DeepNorm's smaller matrices
        assert torch.equal(mine[key], plain[key]) or scaled, f"{key} starts elsewhere when the {room} is {spec.kind}"


@pytest.mark.plain  # float64 numbers; shapes are checked above
@pytest.mark.parametrize(("room", "kind"), [pair for pair in siblings() if issubclass(_class(*pair), Reducible)])
def test_it_equals_what_it_declares_to_equal(room: str, kind: str) -> None:
    reduces_as_declared(room, _class(room, kind), plain())


@pytest.mark.plain
@every_mechanism
def test_a_wrong_value_in_any_field_is_rejected_by_name(room: str, spec: Spec) -> None:
    for field in (each.name for each in dataclasses.fields(spec)):
        # Set behind the constructor's back: with the shape checker on, jaxtyping would answer first.
        wrong = copy.copy(spec)
        object.__setattr__(wrong, field, [])
        with pytest.raises(InputError, match=rf"{spec.kind}\.{field}: expected .*, got \[\]\."):
            wrong.__post_init__()
    with pytest.raises(InputError, match=rf"{room} '{spec.kind}' has no field 'nonsense'"):
        ROOMS[room].make(spec.kind, nonsense=1)
