"""States of a tensor while requirements are propagated: a channel for every entry, a parameter with its axes, or still data."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from addnorm.symmetry.bases.channels import Ids, Requirements


class NoRequirement(Exception):
    """The operation has no rule for these arguments."""


@dataclass(frozen=True)
class Entries:
    """A tensor whose entries are numbers of channels."""

    first: Tensor
    """int64[*shape]: the channel; -1 where the entry is zero."""
    second: Tensor | None = None
    """The other channel of a rotation by position."""
    plain: bool = True
    """False where entries of one token have different factors."""
    squared: bool = False


@dataclass(frozen=True)
class WeightAxes:
    name: str
    axes: tuple[int, ...]
    """Axis of the parameter at every axis of the tensor."""
    offset: float = 0.0
    experts: int | None = None
    """Axis of the parameter along which tokens have chosen an expert."""


@dataclass(frozen=True)
class Data:
    """Numbers that do not move."""

    constant: bool
    value: Tensor | None = None
    """Of a constant of the graph."""


def stop(given: Requirements, state: Any, *, is_unruled: bool = False) -> None:
    """Leave a state in place; `is_unruled` if that is for want of a rule."""
    if isinstance(state, Entries):
        for each in (state.first, state.second):
            if each is not None:
                if is_unruled:
                    given.unruled.append(ids_of(each.unique()))
                given.kind(ids_of(each.unique()), "still")
                given.pinned.append(ids_of(each.unique()))
    elif isinstance(state, WeightAxes):
        given.frozen.add(state.name)
        given.in_place |= {(state.name, axis) for axis in state.axes}
    elif isinstance(state, tuple):
        for each in state:
            stop(given, each, is_unruled=is_unruled)


def still(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return tuple(Data(False) for _ in value) if isinstance(value, list | tuple) else Data(False)


def ids_of(tensor: Tensor) -> Ids:
    return tensor.reshape(-1).numpy()


def varies_along(tensor: Tensor) -> list[bool]:
    """For each axis, whether entries differ along it."""
    return [bool((tensor != tensor.narrow(axis, 0, 1)).any()) for axis in range(tensor.dim())]


def of_one_token(tensor: Tensor) -> Tensor:
    """The channels without the axes along which they are equal (these get size 1)."""
    for axis, varies in enumerate(varies_along(tensor)):
        if not varies:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
