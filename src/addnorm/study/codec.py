"""Specs to plain values and back. What a study file may say is what the dataclasses say, and nothing else.

Every unknown name, wrong type and broken invariant becomes one `InputError` with the path of the place:

    $.variants.rezero.residual: ReZero has no field 'alpha_int', did you mean 'alpha_init'? Known: alpha_init.

Types are taken exactly: 3.0 is no whole number and `true` is no number. A whole number stands where a number may, and so
does text like `3e-4`, which YAML 1.1 does not read as a number.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from addnorm.bias import Biases
from addnorm.catalogue import Room, Spec
from addnorm.errors import InputError
from addnorm.model.architecture import Dropout
from addnorm.study.annotations import WORDS, in_words, rooms_by_base
from addnorm.study.encoding import canonical, digest, encode
from addnorm.study.problems import Problems, nearest, shown

__all__ = ["SHORT_FORMS", "UNREADABLE", "canonical", "construct", "decode", "digest", "encode", "read", "read_fields"]

T = TypeVar("T")

UNREADABLE: Any = object()
"""Stands for a value with problems."""

SHORT_FORMS: dict[type, Callable[[Any], Any]] = {Dropout: Dropout.all, Biases: Biases.all}
"""Dataclasses that one plain value stands for: `dropout: 0.1`, `bias: true`."""

_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def decode(cls: type[T], value: object, path: str = "$") -> T:
    """An instance of the class from a plain value.

    Args:
        cls: a dataclass, or the base class of a room; then `value` is a kind, or a mapping with `kind`.
        value: what YAML or JSON reads.
        path: where the value stands, for messages.

    Raises:
        InputError: up to ten problems, one per line, each with its path.
    """
    problems = Problems()
    made = read(cls, value, path, problems)
    problems.raise_any()
    return made


def read(hint: Any, value: object, path: str, problems: Problems) -> Any:
    """`decode` for any annotation; notes problems instead of raising, and then returns `UNREADABLE`."""
    origin = get_origin(hint)
    if origin is Literal:
        return _read_choice(get_args(hint), value, path, problems)
    if origin in (Union, UnionType):
        return _read_union(get_args(hint), value, path, problems)
    if origin is tuple:
        return _read_tuple(get_args(hint), value, path, problems)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(get_args(hint)[1], value, path, problems)
    if hint in WORDS:
        return _read_plain(hint, value, path, problems)
    if hint in rooms_by_base():
        return _read_sibling(rooms_by_base()[hint], value, path, problems)
    if is_dataclass(hint):
        return _read_dataclass(hint, value, path, problems)
    problems.add(
        path,
        f"is annotated with {in_words(hint)}, which a study cannot hold. Use numbers, text, tuples or dataclasses.",
    )
    return UNREADABLE


def read_fields(cls: Any, value: Mapping[Any, object], path: str, problems: Problems) -> dict[str, Any]:
    """The given fields of a dataclass, each decoded; names and types are checked, the whole is not."""
    hints = get_type_hints(cls)
    known = [field.name for field in fields(cls) if field.init]
    given = {}
    for name, entry in value.items():
        if not isinstance(name, str):
            problems.add(path, f"names must be text, got {shown(name)}. Put it in quotes.")
        elif name == "kind" and issubclass(cls, Spec) and name not in known:
            kind = cls.__module__.rpartition(".")[2]
            if entry != kind:
                problems.add(path, f"{cls.__name__} is of kind '{kind}', got {shown(entry)}.")
        elif name not in known:
            problems.add(path, f"{cls.__name__} has no field {name!r}{nearest(name, known)}")
        else:
            given[name] = read(hints[name], entry, f"{path}.{name}", problems)
    return given


def _read_dataclass(cls: Any, value: object, path: str, problems: Problems) -> Any:
    before = len(problems)
    hints = get_type_hints(cls)
    if not isinstance(value, Mapping):
        return _read_short_form(cls, hints[fields(cls)[0].name], value, path, problems)
    given = read_fields(cls, value, path, problems)
    for field in fields(cls):
        required = field.init and field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in value:
            problems.add(path, f"{cls.__name__} needs the field '{field.name}' ({in_words(hints[field.name])}).")
    return UNREADABLE if len(problems) > before else construct(lambda: cls(**given), path, problems)


def _read_short_form(cls: type, entry: Any, value: object, path: str, problems: Problems) -> Any:
    short, unsaid = SHORT_FORMS.get(cls), Problems()
    plain = read(entry, value, path, unsaid)
    if short is None or len(unsaid):
        also = "" if short is None else f"{in_words(entry)} or "
        problems.add(path, f"must be {also}a mapping of the fields of {cls.__name__}, got {shown(value)}.")
        return UNREADABLE
    return construct(lambda: short(plain), path, problems)


def construct(make: Callable[[], Any], path: str, problems: Problems) -> Any:
    """What `make` returns; an exception becomes a problem, and the result `UNREADABLE`."""
    try:
        return make()
    except InputError as error:
        problems.add(path, str(error))
    except Exception as error:  # noqa: BLE001 - the __post_init__ of a user's plugin may raise anything
        problems.add(path, f"{type(error).__name__}: {error}")
    return UNREADABLE


def _read_sibling(room: Room, value: object, path: str, problems: Problems) -> Any:
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or "kind" not in value:
        problems.add(
            path, f"a {room.name} is a kind or a mapping with 'kind', got {shown(value)}{nearest('', room.kinds())}"
        )
        return UNREADABLE
    kind = value["kind"]
    if kind not in room.kinds():
        problems.add(path, f"no {room.name} {shown(kind)}{nearest(kind, room.kinds())}")
        return UNREADABLE
    return _read_dataclass(room.spec_class(kind), value, path, problems)


def _read_plain(hint: type, value: object, path: str, problems: Problems) -> Any:
    if hint is float:
        number = _as_float(value)
        if number is not None:
            return number
    elif type(value) is hint:
        return value
    advice = ""
    if hint is int and isinstance(value, float) and value.is_integer():
        advice = f" Write {int(value)}."
    elif hint is str and not isinstance(value, Mapping | list | tuple | NoneType):
        advice = " Put it in quotes."
    elif hint is float and isinstance(value, float | int) and not isinstance(value, bool):
        advice = " It must be finite."
    problems.add(path, f"must be {WORDS[hint]}, got {shown(value)}.{advice}")
    return UNREADABLE


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _EXPONENT.fullmatch(value):
        return None
    try:
        number = float(value) + 0.0  # -0.0 equals 0.0, so both must be written alike
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _read_choice(choices: tuple[Any, ...], value: object, path: str, problems: Problems) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    name = path.rpartition(".")[2]
    problems.add(path, f"no {name} {shown(value)}{nearest(value, [str(choice) for choice in choices])}")
    return UNREADABLE


def _read_union(members: tuple[Any, ...], value: object, path: str, problems: Problems) -> Any:
    # A member of the value's very type comes first, so that 1 stays whole where both int and float may stand.
    for member in sorted(members, key=lambda member: member is not type(value)):
        attempt = Problems()
        made = read(member, value, path, attempt)
        if not len(attempt):
            return made
    rest = [member for member in members if member is not NoneType]
    if len(rest) == 1 and rest[0] not in WORDS and value is not None:
        return read(rest[0], value, path, problems)
    problems.add(path, f"must be {' or '.join(in_words(member) for member in members)}, got {shown(value)}.")
    return UNREADABLE


def _read_tuple(members: tuple[Any, ...], value: object, path: str, problems: Problems) -> Any:
    if not isinstance(value, list | tuple):
        advice = f" Write [{value}]." if isinstance(value, int | float | str) else ""
        problems.add(path, f"must be a list, got {shown(value)}.{advice}")
        return UNREADABLE
    if members[-1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(value) != len(members):
        problems.add(path, f"must be a list of {len(members)}, got {shown(value)}.")
        return UNREADABLE
    before = len(problems)
    made = tuple(
        read(member, entry, f"{path}[{index}]", problems)
        for index, (member, entry) in enumerate(zip(members, value, strict=True))
    )
    return UNREADABLE if len(problems) > before else made


def _read_mapping(member: Any, value: object, path: str, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.add(path, f"must be a mapping, got {shown(value)}.")
        return UNREADABLE
    before = len(problems)
    made = {}
    for name, entry in value.items():
        if isinstance(name, str):
            made[name] = read(member, entry, f"{path}.{name}", problems)
        else:
            problems.add(path, f"names must be text, got {shown(name)}. Put it in quotes.")
    return UNREADABLE if len(problems) > before else made
