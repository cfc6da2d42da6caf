"""Law of every spec of every room: a value that does not fit its field is refused in construction, by name."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from addnorm.catalogue import ROOMS, Spec
from addnorm.errors import InputError
from addnorm.outside.foreign.checkpoint import PatchSpec

SIBLINGS = [(room.name, kind) for room in ROOMS.values() for kind in room.kinds()]
every_sibling = pytest.mark.parametrize(("room", "kind"), SIBLINGS, ids=["-".join(sibling) for sibling in SIBLINGS])

VALUES = (
    None,
    True,
    3,
    2.5,
    math.nan,
    math.inf,
    "everythin",
    "0.1",
    [],
    ["a"],
    (),
    ("a",),
    (0.5,),
    (0.5, True),
    {},
    object(),
)
FITTING: dict[Any, Callable[[Any], bool]] = {
    NoneType: lambda value: value is None,
    bool: lambda value: type(value) is bool,
    int: lambda value: type(value) is int,
    float: lambda value: type(value) in (int, float) and math.isfinite(value),
    str: lambda value: type(value) is str,
    PatchSpec: lambda value: isinstance(value, PatchSpec),
    tuple[bool, ...]: lambda value: type(value) is tuple and all(type(entry) is bool for entry in value),
    tuple[str, ...]: lambda value: type(value) is tuple and all(type(entry) is str for entry in value),
}


def fits(value: Any, hint: Any) -> bool:
    """The annotation's meaning, written down apart from the library's. A hint that is not known here fails the test."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, member) for member in arguments)
    if get_origin(hint) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if get_origin(hint) is Mapping:
        names, values = arguments
        return isinstance(value, Mapping) and all(fits(k, names) and fits(v, values) for k, v in value.items())
    if get_origin(hint) is tuple and arguments[-1] is not Ellipsis:
        return type(value) is tuple and len(value) == len(arguments) and all(map(fits, value, arguments))
    return FITTING[hint](value)


def unchecked(cls: type[Any], **overrides: Any) -> type[Any]:
    """A subclass with a constructor made here, where no shape checker stands before it with errors of its own."""
    body = {"__module__": cls.__module__, **overrides}
    return dataclass(frozen=True, kw_only=True)(type(cls.__name__, (cls,), body))


def required(cls: type[Any]) -> dict[str, Any]:
    """A text for every field without a default, which are paths and names."""
    return {name: "x" for name, field in cls.__dataclass_fields__.items() if field.default is field.default_factory}


def assert_refuses_wrong_values(cls: type[Any], kind: str) -> int:
    refused = 0
    for field in fields(cls):
        hint = get_type_hints(cls)[field.name]
        wrong = [value for value in VALUES if not fits(value, hint)]
        assert len(wrong) >= 8
        for value in wrong:
            message = rf"^{kind}\.{field.name}: expected .*, got {re.escape(repr(value))}\."
            with pytest.raises(InputError, match=message):
                cls(**(required(cls) | {field.name: value}))
            refused += 1
    return refused


def test_there_are_specs_with_fields_in_the_lab_and_elsewhere() -> None:
    with_fields = {room for room, kind in SIBLINGS if fields(ROOMS[room].spec_class(kind))}
    assert with_fields >= {"residual", "scores", "norm", "position", "switch"}
    assert with_fields >= {"corpus", "tokenizer", "optimizer", "schedule"}


@every_sibling
def test_a_wrong_value_of_any_field_is_refused(room: str, kind: str) -> None:
    assert_refuses_wrong_values(unchecked(ROOMS[room].spec_class(kind)), kind)


@every_sibling
def test_so_it_is_where_a_subclass_forgets_to_call_super(room: str, kind: str) -> None:
    checks: list[Spec] = []
    cls = unchecked(ROOMS[room].spec_class(kind), __post_init__=checks.append)
    refused = assert_refuses_wrong_values(cls, kind)
    assert refused or not fields(cls)
    assert checks == [], "what it checks itself comes after the types"
    made = cls(**required(cls))
    assert len(checks) == 1
    assert checks[0] is made


@every_sibling
def test_so_it_is_where_another_class_has_the_first_post_init(room: str, kind: str) -> None:
    class First:
        def __post_init__(self) -> None:
            """Does not know of specs."""

    cls: Any = ROOMS[room].spec_class(kind)
    mixed = dataclass(frozen=True, kw_only=True)(type(cls.__name__, (First, cls), {"__module__": cls.__module__}))
    assert_refuses_wrong_values(mixed, kind)


@every_sibling
def test_so_it_is_where_a_subclass_writes_its_own_constructor(room: str, kind: str) -> None:
    def make(self: Spec, **given: Any) -> None:
        for field in fields(self):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            object.__setattr__(self, field.name, given.get(field.name, default))

    assert_refuses_wrong_values(unchecked(ROOMS[room].spec_class(kind), __init__=make), kind)


def test_a_constructor_that_calls_the_one_above_may_set_its_fields_afterwards() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Above(Spec):
        low: int = 0

        def __init__(self, low: int = 0) -> None:
            object.__setattr__(self, "low", low)

    @dataclass(frozen=True, kw_only=True)
    class Below(Above):
        high: int = 1

        def __init__(self, low: int = 0, high: int = 1) -> None:
            super().__init__(low)
            object.__setattr__(self, "high", high)

    assert (Below(2, 3).low, Below(2, 3).high) == (2, 3)
    with pytest.raises(InputError, match=r"\.high: expected a whole number, got 'x'"):
        Below(2, "x")  # type: ignore[arg-type]


def test_the_types_are_checked_once_though_every_class_calls_super(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("addnorm.catalogue.check_fields", lambda config, name: seen.append(name))
    for room, kind in SIBLINGS:
        cls = ROOMS[room].spec_class(kind)
        cls(**required(cls))
    assert seen == [kind for _, kind in SIBLINGS]
