"""Checks of a configuration's values against its annotations, which dataclasses themselves do not make."""

import functools
import math
import types
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from addnorm.errors import InputError, did_you_mean

PLAIN_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
    NoneType: "null",
}
"""The plain values of a configuration, in words."""


class FieldError(InputError):
    """A field has a wrong value: `adamw.learning_rate: expected a positive number, got -1.0.`

    Args:
        config: name of the configuration.
        field: name of its field.
        problem: `expected …, got ….`
    """

    def __init__(self, config: str, field: str, problem: str) -> None:
        super().__init__(f"{config}.{field}: {problem}")
        self.field = field
        self.problem = problem


class JsonFields:
    """Base of a dataclass whose JSON has its fields, in their order."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON values, those of dataclasses below included."""
        config: Any = self
        return {field.name: _plain(getattr(config, field.name)) for field in fields(config)}


def flat_fields(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of inner mappings under names joined by points: `training.optimizer.betas`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from flat_fields(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def check_fields(config: Any, name: str) -> None:
    """Check every field of a dataclass that is annotated with a number, text, switch, choice or class, or with a tuple or
    mapping of these.

    Args:
        config: a dataclass instance.
        name: its name in messages.

    Raises:
        FieldError: a value does not fit its annotation, or a number is not finite.
    """
    cls: Any = type(config)
    hints = type_hints(cls)
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if not fits(value, hint):
            near = did_you_mean(value, _choices(hint)) if isinstance(value, str) else ""
            raise FieldError(name, field.name, f"expected {in_words(hint)}, got {value!r}.{near}")


def require(config: Any, name: str, condition: bool, expected: str, advice: str = "") -> None:
    """Refuse a field's value unless a condition holds.

    Example::

        require(self, "held_out", 0 < self.held_out < 1, "a share between 0 and 1")

    Args:
        config: the configuration.
        name: the field.
        condition: True if the value is accepted.
        expected: the accepted values in words.
        advice: a sentence that ends the message.

    Raises:
        FieldError: the condition is false.
    """
    if not condition:
        problem = f"expected {expected}, got {getattr(config, name)!r}.{advice and ' '}{advice}"
        raise FieldError(_name(config), name, problem)


def require_positive(config: Any, *names: str) -> None:
    """Check that number fields are above zero.

    Raises:
        FieldError: one of them is zero or less.
    """
    for name in names:
        require(config, name, getattr(config, name) > 0, "a positive number")


def require_at_least(config: Any, least: int | float, *names: str) -> None:
    """Check that number fields are not below a bound.

    Raises:
        FieldError: one of them is below it.
    """
    for name in names:
        value = getattr(config, name)
        number = "a whole number" if isinstance(value, int) else "a number"
        require(config, name, value >= least, f"{number} of at least {least}")


def _name(config: Any) -> str:
    name: str = getattr(config, "kind", None) or type(config).__name__.lower()
    return name


@functools.cache
def type_hints(cls: Hashable) -> dict[str, Any]:
    """Annotations of a class's fields, evaluated once.

    Raises:
        InputError: an annotation has a name that is not defined where the class is.
    """
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise InputError(f"{cls}: the annotation of a field cannot be read: {error}. Import that name.") from error


def fits(value: Any, hint: Any) -> bool:
    """True if a value fits an annotation exactly: `True` is not a number, 3.0 is not a whole number."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        # True == 1 and 1.0 == 1 in Python: without the type, `true` would pass for a choice of 1.
        return any(value is choice or (type(value) is type(choice) and value == choice) for choice in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and _entries_fit(value, get_args(hint))
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        name, entry = get_args(hint)
        return isinstance(value, Mapping) and all(fits(k, name) and fits(v, entry) for k, v in value.items())
    if isinstance(hint, type) and get_origin(hint) is None:
        return isinstance(value, hint)
    return True  # callables and other containers are checked where they are used


def _entries_fit(value: tuple[Any, ...], members: tuple[Any, ...]) -> bool:
    if members[-1:] == (Ellipsis,):
        members = members[:1] * len(value)
    return len(value) == len(members) and all(map(fits, value, members))


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in _choices(part)]


def in_words(hint: Any, names: Mapping[Any, str] = types.MappingProxyType({})) -> str:
    """An annotation in words: `a whole number or null`.

    Args:
        hint: the annotation.
        names: words for classes, where another word than the class's name is known.
    """
    if hint in PLAIN_WORDS:
        return PLAIN_WORDS[hint]
    members, origin = get_args(hint), get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(part, names) for part in members)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, members))
    if origin is tuple:
        if members[-1:] == (Ellipsis,):
            return f"a list, each entry {in_words(members[0], names)}"
        return f"a list of {len(members)}: {', '.join(in_words(part, names) for part in members)}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping from {in_words(members[0], names)} to {in_words(members[1], names)}"
    return names.get(hint) or f"a {getattr(hint, '__name__', hint)}"
