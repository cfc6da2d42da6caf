"""Searching and grouping of long lists of models."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

MOST_CARDS = 12
"""Models that are shown one by one; above, they are rows that can be searched, sorted and grouped."""
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def matches(query: str, text: str) -> bool:
    """True if the text contains each word of the query, in any order; upper and lower case are the same."""
    within = text.casefold()
    return all(word in within for word in query.casefold().split())


def grouped(items: Sequence[_Item], key: Callable[[_Item], _Key]) -> list[tuple[_Key, list[_Item]]]:
    """The items by key, in the order in which the keys first occur."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())
