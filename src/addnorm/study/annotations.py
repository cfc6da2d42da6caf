"""What a field's annotation stands for: a room, and in words."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from addnorm.catalogue import ROOMS, Room

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}


@cache
def rooms_by_base() -> dict[Any, Room]:
    """The rooms by the base class of their specs, which is how a field says that any sibling may stand in it."""
    return {getattr(import_module(room.package), room.base): room for room in ROOMS.values()}


def in_words(hint: Any) -> str:
    """What a message says a field takes: `a whole number or null`."""
    if hint in WORDS:
        return WORDS[hint]
    origin = get_origin(hint)
    if origin is Literal:
        return " or ".join(str(choice) for choice in get_args(hint))
    if origin in (Union, UnionType):
        return " or ".join(in_words(member) for member in get_args(hint))
    if origin is tuple:
        return "a list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping"
    room = rooms_by_base().get(hint)
    return f"a {room.name}" if room else getattr(hint, "__name__", str(hint))
