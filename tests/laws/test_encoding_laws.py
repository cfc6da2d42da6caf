"""Laws of the codec over every spec in the catalogue; the strategies are read off the dataclasses."""

import contextlib
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.model.architecture import Dropout
from addnorm.model.spec import ModelSpec
from addnorm.residual.rezero import ReZero
from addnorm.study.decoding import decode
from addnorm.study.definition import Training
from addnorm.study.encoding import canonical, digest, encode
from sampled import sampled

SPECS = [
    *(room.spec_class(kind) for room in ROOMS.values() for kind in room.kinds()),
    ModelSpec,
    Training,
    Dropout,
    Biases,
]
# Specs reject what does not fit together, so many drawn ones are thrown away.
LENIENT = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def each(specs: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "cls", specs, ids=lambda cls: f"{cls.__module__.removeprefix('addnorm.')}.{cls.__name__}"
    )


SIBLINGS = {
    getattr(import_module(room.package), room.base): [room.spec_class(kind) for kind in room.kinds()]
    for room in ROOMS.values()
}


class Recipe:
    """A spec before it is made: under shape checks making one draws random numbers, which strategies must not."""

    def __init__(self, cls: Any, given: dict[str, Any]) -> None:
        self.cls, self.given = cls, given

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({self.given})"


def made(recipe: Any) -> Any:
    """What the recipe is for.

    Raises:
        InputError: its parts do not fit together.
    """
    if not isinstance(recipe, Recipe):
        return recipe
    return recipe.cls(**{name: made(value) for name, value in recipe.given.items()})


def fitting(make: Callable[[], Any]) -> list[Any]:
    """What is made, in a list that is empty where its parts do not fit together."""
    try:
        return [make()]
    except InputError:
        return []


hints_of = cache(get_type_hints)


@cache  # a strategy that is made anew for every example is also checked anew
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this annotation may hold, as recipes where it holds a spec."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(members)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, members))
    if origin is Mapping:
        return st.dictionaries(values(members[0]), values(members[1]), max_size=3)
    if origin is tuple and members[-1] is Ellipsis:
        return st.lists(values(members[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, members))
    if hint in SIBLINGS:
        return st.sampled_from(SIBLINGS[hint]).flatmap(recipes)
    plain = {
        int: st.sampled_from([1, 2, 4, 8, 300, 1024]),
        float: st.floats(0, 1, exclude_min=True, exclude_max=True) | st.sampled_from([0.0, -0.0, 1.0, 3e-4, 5e-324]),
        bool: st.booleans(),
        str: st.text(max_size=5),
        type(None): st.none(),
    }
    return plain[hint] if hint in plain else recipes(hint)


@st.composite
def recipes(draw: st.DrawFn, cls: Any) -> Recipe:
    """A spec in which each field is drawn, or left at its default."""
    hints = hints_of(cls)
    chosen = [field.name for field in fields(cls) if draw(st.booleans()) or field.default is field.default_factory]
    return Recipe(cls, {name: draw(values(hints[name])) for name in chosen})


def test_every_room_is_covered() -> None:
    assert len(SPECS) > 30
    assert {cls.__mro__[1] for cls in SPECS} >= set(SIBLINGS)


def is_read_back(spec: Any) -> None:
    plain, cls = encode(spec), type(spec)
    assert decode(cls, plain) == spec
    assert decode(cls, json.loads(json.dumps(plain))) == spec
    assert decode(cls, yaml.safe_load(yaml.safe_dump(plain, allow_unicode=False))) == spec


def has_a_digest_of_its_own(spec: Any, other: Any) -> None:
    assert (spec == other) == (digest(spec) == digest(other))


def refuses_the_name(spec: Any, name: str) -> None:
    cls, plain = type(spec), encode(spec)
    if name not in plain:
        with pytest.raises(InputError, match=rf"^\$: {cls.__name__} has no field '{name}'"):
            decode(cls, {**plain, name: 1})


@each(sampled(2, SPECS))
@given(data=st.data())
@LENIENT
def test_a_spec_keeps_the_laws_of_the_codec(cls: Any, data: st.DataObject) -> None:
    """All laws of one drawn spec: to draw it takes longer than to ask them."""
    own = fitting(lambda: made(data.draw(recipes(cls))))
    assume(own)
    (spec,) = own
    is_read_back(spec)
    refuses_the_name(spec, data.draw(st.text("abcdefghijklmnop_", min_size=1, max_size=8)))
    has_a_digest_of_its_own(spec, replace(spec))
    for other in fitting(lambda: made(data.draw(recipes(cls)))):
        has_a_digest_of_its_own(spec, other)
    if fields(cls):
        field = data.draw(st.sampled_from(fields(cls)))
        recipe = data.draw(values(hints_of(cls)[field.name]))
        for changed in fitting(lambda: replace(spec, **{field.name: made(recipe)})):
            has_a_digest_of_its_own(spec, changed)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None)
def test_every_finite_number_survives(number: float) -> None:
    spec = ReZero(alpha_init=number)
    again = decode(ReZero, json.loads(canonical(spec)))
    assert again == spec
    assert math.copysign(1, again.alpha_init) == (math.copysign(1, number) if number else 1)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(value=PLAIN, name=st.sampled_from([field.name for field in fields(ModelSpec)]))
@settings(deadline=None)
def test_no_value_gets_past_as_anything_but_an_input_error(value: object, name: str) -> None:
    with contextlib.suppress(InputError):
        decode(ModelSpec, {name: value})


@given(seed=st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_fields_decides_nothing(seed: Any) -> None:
    plain = encode(ModelSpec())
    names = list(plain)
    seed.shuffle(names)
    assert digest(decode(ModelSpec, {name: plain[name] for name in names})) == digest(ModelSpec())
