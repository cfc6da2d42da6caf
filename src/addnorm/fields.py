"""Do a configuration's values fit its annotations? Dataclasses do not ask, and a misspelt choice would pass in silence."""

import functools
import math
import types
from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from addnorm.errors import InputError, did_you_mean


def check_fields(config: Any, name: str) -> None:
    """Check every field of a dataclass whose annotation is a number, a text, a switch, a choice, another class, or a tuple or
    mapping of these.

    Args:
        config: a dataclass instance.
        name: what a message calls it.

    Raises:
        InputError: a value that does not fit its annotation, or a number that is not finite.
    """
    cls: Any = type(config)
    hints = _hints(cls)
    for field in fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if not _fits(value, hint):
            near = did_you_mean(value, _choices(hint)) if isinstance(value, str) else ""
            raise InputError(f"{name}.{field.name} must be {_in_words(hint)}, got {value!r}.{near}")


def require_positive(config: Any, *names: str) -> None:
    """Raises:
    InputError: one of these number fields is zero or less.
    """
    for name in names:
        if not getattr(config, name) > 0:
            raise InputError(f"{config.kind}.{name} must be positive, got {getattr(config, name)!r}.")


@functools.cache
def _hints(cls: Hashable) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise InputError(f"{cls}: a field's annotation cannot be read: {error}. Import that name.") from error


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value is choice or (type(value) is type(choice) and value == choice) for choice in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and _entries_fit(value, get_args(hint))
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        name, entry = get_args(hint)
        return isinstance(value, Mapping) and all(_fits(k, name) and _fits(v, entry) for k, v in value.items())
    if isinstance(hint, type) and get_origin(hint) is None:
        return isinstance(value, hint)
    return True  # callables and other containers are checked by who uses them


def _entries_fit(value: tuple[Any, ...], members: tuple[Any, ...]) -> bool:
    if members[-1:] == (Ellipsis,):
        members = members[:1] * len(value)
    return len(value) == len(members) and all(map(_fits, value, members))


def _choices(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _in_words(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_in_words(part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        members = get_args(hint)
        if members[-1:] == (Ellipsis,):
            return f"a tuple, each entry {_in_words(members[0])}"
        return f"a tuple of {len(members)}: {', '.join(map(_in_words, members))}"
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return f"a mapping from {_in_words(get_args(hint)[0])} to {_in_words(get_args(hint)[1])}"
    words = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a text", type(None): "null"}
    return words.get(hint) or f"a {getattr(hint, '__name__', hint)}"
