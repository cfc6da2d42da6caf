"""Plain values (YAML, JSON) to specs. The dataclasses are the schema; nothing else is accepted.

Every unknown name, wrong type and violated condition is reported in one `InputError`, each with the path of its place:

    $.variants.rezero.residual: ReZero has no field 'alpha_int', did you mean 'alpha_init'? Known: alpha_init.

Types are exact: 3.0 is not a whole number and `true` is not a number. A number may be written as a whole number, or as text
such as `3e-4`, which YAML 1.1 does not read as a number.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from addnorm.bias import Biases
from addnorm.catalogue import Room, Spec, rooms_by_base
from addnorm.earlier_fields import as_now
from addnorm.errors import InputError, did_you_mean
from addnorm.fields import PLAIN_WORDS, FieldError, in_words, type_hints
from addnorm.model.architecture import Dropout
from addnorm.strict_yaml import in_ascii
from addnorm.study.problems import Problems, nearest, shown

T = TypeVar("T")

UNREADABLE: Any = object()
"""Result of reading a value that has problems."""

SHORT_FORMS: dict[type, Callable[[Any], Any]] = {Dropout: Dropout.all, Biases: Biases.all}
"""Dataclasses that may be written as one plain value: `dropout: 0.1`, `bias: true`."""

_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def decode(cls: type[T], value: object, path: str = "$") -> T:
    """Construct an instance of a class from a plain value.

    Args:
        cls: a dataclass, or the base class of a room; the value of a room is a kind, or a mapping with `kind`.
        value: a value as YAML and JSON return it.
        path: the value's place, for messages.

    Raises:
        InputError: up to ten problems, one per line, each with its path.
    """
    problems = Problems()
    instance = read(cls, value, path, problems)
    problems.raise_any()
    return instance


def read(hint: Any, value: object, path: str, problems: Problems) -> Any:
    """`decode` for any annotation; adds problems instead of raising, and then returns `UNREADABLE`."""
    origin = get_origin(hint)
    if origin is Literal:
        return _read_choice(hint, value, path, problems)
    if origin in (Union, UnionType):
        return _read_union(hint, value, path, problems)
    if origin is tuple:
        return _read_tuple(get_args(hint), value, path, problems)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(get_args(hint)[1], value, path, problems)
    if hint in PLAIN_WORDS:
        return _read_plain(hint, value, path, problems)
    if hint in rooms_by_base():
        return _read_sibling(rooms_by_base()[hint], value, path, problems)
    if is_dataclass(hint):
        return _read_dataclass(hint, value, path, problems)
    problems.add(path, f"expected an annotation with numbers, texts, tuples or dataclasses, got {_words(hint)}.")
    return UNREADABLE


def read_fields(cls: Any, value: Mapping[Any, object], path: str, problems: Problems) -> dict[str, Any]:
    """Decode the given fields of a dataclass without constructing it."""
    hints = type_hints(cls)
    known = [field.name for field in fields(cls) if field.init]
    given = {}
    value = construct(lambda: as_now(cls, value), path, problems)
    for name, entry in {} if value is UNREADABLE else value.items():
        if not isinstance(name, str):
            _refuse_name(name, path, problems)
        elif name == "kind" and issubclass(cls, Spec) and name not in known:
            # A kind is the name of its file, so a mapping that came from an encoded spec says it once more; another one
            # is refused.
            kind = cls.__module__.rpartition(".")[2]
            if entry != kind:
                problems.add(f"{path}.kind", f"expected '{kind}', got {shown(entry)}.")
        elif name not in known:
            problems.add(path, f"{cls.__name__} has no field {name!r}{_of_sibling(cls, name) or nearest(name, known)}")
        else:
            given[name] = read(hints[name], entry, f"{path}.{name}", problems)
    return given


def _of_sibling(cls: Any, name: str) -> str:
    """Advice for a field of another kind of the same room, where this one has no fields at all: `kind` was left out."""
    rooms = [room for base, room in rooms_by_base().items() if issubclass(cls, base)]
    if not rooms or fields(cls):
        return ""
    kinds = [kind for kind in rooms[0].kinds() if name in {each.name for each in fields(rooms[0].spec_class(kind))}]
    return f". Write its kind: {', '.join(kinds)}. Known: none." if 0 < len(kinds) <= 6 else ""


def construct(make: Callable[[], Any], path: str, problems: Problems) -> Any:
    """Call `make`; an exception becomes a problem, at the place of the field that it names, and the result `UNREADABLE`."""
    try:
        return make()
    except FieldError as error:
        problems.add(f"{path}.{error.field}", error.problem)
    except InputError as error:
        problems.add(path, str(error))
    except Exception as error:  # noqa: BLE001 - the __post_init__ of a user's plugin may raise anything
        problems.add(path, f"{type(error).__name__}: {error}")
    return UNREADABLE


def _read_dataclass(cls: Any, value: object, path: str, problems: Problems) -> Any:
    before = len(problems)
    hints = type_hints(cls)
    if not isinstance(value, Mapping):
        return _read_short_form(cls, hints[fields(cls)[0].name], value, path, problems)
    given = read_fields(cls, value, path, problems)
    for field in fields(cls):
        required = field.init and field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in value:
            problems.add(path, f"{cls.__name__} needs the field '{field.name}' ({_words(hints[field.name])}).")
    # The class is made only from fields that are all readable: its own checks compare fields with each other, and would
    # add nonsense about the ones that are missing.
    return UNREADABLE if len(problems) > before else construct(lambda: cls(**given), path, problems)


def _read_short_form(cls: type, entry: Any, value: object, path: str, problems: Problems) -> Any:
    short, entry_problems = SHORT_FORMS.get(cls), Problems()
    plain = read(entry, value, path, entry_problems)
    if short is None or len(entry_problems):
        alternative = "" if short is None else f"{_words(entry)} or "
        problems.add(path, f"expected {alternative}a mapping with the fields of {cls.__name__}, got {shown(value)}.")
        return UNREADABLE
    return construct(lambda: short(plain), path, problems)


def _read_sibling(room: Room, value: object, path: str, problems: Problems) -> Any:
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or "kind" not in value:
        problems.add(
            path,
            f"expected a kind of {room.name} or a mapping with 'kind', got {shown(value)}{_of_kind(room, value)}"
            f"{nearest('', room.kinds())}",
        )
        return UNREADABLE
    kind = value["kind"]
    if kind not in room.kinds():
        problems.add(path, f"no {room.name} {shown(kind)}{_as_path(room, kind) or nearest(kind, room.kinds())}")
        return UNREADABLE
    return _read_dataclass(room.spec_class(kind), value, path, problems)


def _of_kind(room: Room, value: object) -> str:
    """Advice for a mapping without a kind: the kinds that have all of its fields."""
    if not isinstance(value, Mapping) or not value:
        return ""
    kinds = [kind for kind in room.kinds() if value.keys() <= {field.name for field in fields(room.spec_class(kind))}]
    return f". Write kind: {' or kind: '.join(kinds)}" if 0 < len(kinds) <= 3 else ""


def _as_path(room: Room, kind: object) -> str:
    """Advice for the name of a file or of a model where a kind is expected."""
    of_file = {"corpus": "text", "tokenizer": "pretrained"}.get(room.name)
    is_file = isinstance(kind, str) and re.search(r"[/\\]|\.(txt|md|jsonl?|py|csv|text)$", kind)
    if is_file and of_file in room.kinds():
        return f". Write {{kind: {of_file}, path: {kind}}}. Known: {', '.join(room.kinds())}."
    if of_file == "pretrained" and isinstance(kind, str) and kind in ("gpt2", "gpt-2", "llama", "bert", "tiktoken"):
        return f". Write {{kind: pretrained, path: FOLDER}}, with its tokenizer.json. Known: {', '.join(room.kinds())}."
    return ""


def _read_plain(hint: type, value: object, path: str, problems: Problems) -> Any:
    if hint is float:
        number = _as_float(value)
        if number is not None:
            return number
    elif type(value) is hint:
        return value
    advice = ""
    number = _as_float(in_ascii(value) if isinstance(value, str) else value)
    if hint is int and number is not None and number.is_integer():
        advice = f" Write {int(number)}."
    elif isinstance(value, str) and hint in (int, float) and (written := in_ascii(value)) != value:
        advice = f" Write {written}."
    elif hint in (int, float) and isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        advice = f" Write {value} without quotes."
    elif hint is str and not isinstance(value, Mapping | list | tuple | NoneType):
        advice = " Put it in quotes."
    problems.add(path, f"expected {_words(hint)}, got {shown(value)}.{advice}")
    return UNREADABLE


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _EXPONENT.fullmatch(value):
        return None
    try:
        # YAML 1.1 reads 1e-4 as a text, since it has no dot; only texts with an exponent are taken for numbers, so that
        # "3" and "nan" stay texts. Infinity has no place in canonical JSON.
        number = float(value) + 0.0  # -0.0 equals 0.0, so both must be encoded alike
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _read_choice(hint: Any, value: object, path: str, problems: Problems) -> Any:
    choices = get_args(hint)
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    problems.add(path, f"expected {_words(hint)}, got {shown(value)}.{did_you_mean(value, map(str, choices))}")
    return UNREADABLE


def _read_union(hint: Any, value: object, path: str, problems: Problems) -> Any:
    members = get_args(hint)
    if isinstance(value, Mapping) and any(member in rooms_by_base() for member in members):
        # Of a room and a dataclass, the one with `kind` is the room's; so that its own problems are reported.
        of_room = "kind" in value
        members = tuple(m for m in members if (m in rooms_by_base()) == of_room and is_dataclass(m)) or members
        if len(members) == 1:
            return read(members[0], value, path, problems)
    # The member of the value's own type comes first, so that 1 stays whole where both int and float are allowed.
    # Each member gets its own list of problems, because only one of them has to accept the value. If none does, the
    # problems of all would contradict each other; with a single structured member they are its own, which say most.
    for member in sorted(members, key=lambda member: member is not type(value)):
        attempt = Problems()
        instance = read(member, value, path, attempt)
        if not len(attempt):
            return instance
    rest = [member for member in members if member is not NoneType]
    if len(rest) == 1 and rest[0] not in PLAIN_WORDS and value is not None:
        return read(rest[0], value, path, problems)
    problems.add(path, f"expected {_words(hint)}, got {shown(value)}.")
    return UNREADABLE


def _read_tuple(members: tuple[Any, ...], value: object, path: str, problems: Problems) -> Any:
    if not isinstance(value, list | tuple):
        problems.add(path, f"expected a list, got {shown(value)}.{_as_list(members[0], value)}")
        return UNREADABLE
    if members[-1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(value) != len(members):
        problems.add(path, f"expected a list of {len(members)}, got {shown(value)}.")
        return UNREADABLE
    before = len(problems)
    entries = tuple(
        read(member, entry, f"{path}[{index}]", problems)
        for index, (member, entry) in enumerate(zip(members, value, strict=True))
    )
    return UNREADABLE if len(problems) > before else entries


def _as_list(member: Any, value: object) -> str:
    """Advice for one value in the place of a list: `3`, `0..4`, or a list in full-width brackets."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return ""
    written = in_ascii(value).strip("[] ") if isinstance(value, str) else str(value)
    if member is int and (ends := re.fullmatch(r"(\d+)\s*(?:\.\.\.?|-|:|to)\s*(\d+)", written)):
        first, last = map(int, ends.groups())
        written = ", ".join(map(str, range(first, min(last, first + 9) + 1)))
    elif member is int and not re.fullmatch(r"[\d ,+-]+", written):
        return ""
    return f" Write [{written}]."


def _read_mapping(member: Any, value: object, path: str, problems: Problems) -> Any:
    if not isinstance(value, Mapping):
        problems.add(path, f"expected a mapping, got {shown(value)}.")
        return UNREADABLE
    before = len(problems)
    entries = {}
    for name, entry in value.items():
        if isinstance(name, str):
            entries[name] = read(member, entry, f"{path}.{name}", problems)
        else:
            _refuse_name(name, path, problems)
    return UNREADABLE if len(problems) > before else entries


def _refuse_name(name: object, path: str, problems: Problems) -> None:
    problems.add(path, f"expected names that are texts, got {shown(name)}. Put it in quotes.")


def _words(hint: Any) -> str:
    return in_words(hint, {base: f"a {room.name}" for base, room in rooms_by_base().items()})
