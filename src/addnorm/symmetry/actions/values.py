"""Spaces, values and weights: the state of each node of the graph.

A *space* is a vector X of n data-dependent numbers at each *datum* (a token, a pair of tokens), on which one linear action
works, equal at every datum:

    δX = A X + b,        A: [n, n] and b: [n], both unknown.

A *value* is a tensor whose every entry is a known linear form of one space at one datum. Views, slices, rotations by
position, negations and concatenations change the forms alone; only what is not linear asks for a new space. Beside the
action, a value may move by *free shifts*: any function of the data times a fixed direction, which a norm or a softmax
removes further on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers

NOWHERE = -1
"""Datum of an entry that is zero."""


@dataclass(eq=False)
class Space:
    """The vector on which an action works."""

    linear: Ids
    """A, [n, n]."""
    shift: Ids
    """b, [n]."""
    nulls: list[tuple[Numbers, float]] = field(default_factory=list)
    """Pairs (v, k) with v·X + k = 0 at every datum."""
    roles: set[str] = field(default_factory=set)
    """The space's roles in the graph, such as `key`; families are told apart by these, never by names."""
    path: str = ""
    """The module in which the space arises, for reports only."""

    @property
    def size(self) -> int:
        return len(self.shift)


@dataclass(frozen=True)
class FreeShift:
    """A shift by `direction` times any number per `group`, made by moves of `sources`."""

    group: Tensor
    """int[*shape]: entries with the same number share it."""
    direction: Tensor
    """float[*shape]."""
    sources: Ids
    """The unknowns that make the shift; they vanish where nothing removes it."""


@dataclass(frozen=True)
class Value:
    """A tensor of linear forms of one space."""

    space: Space
    forms: Tensor
    """float64[*shape, n]."""
    datum: Tensor
    """int64[*shape]; `NOWHERE` where the form is zero."""
    free: tuple[FreeShift, ...] = ()

    @property
    def shape(self) -> torch.Size:
        return self.datum.shape

    def with_free(self, free: tuple[FreeShift, ...]) -> "Value":
        return replace(self, free=free)

    def rearranged(self, how: Callable[[Tensor], Tensor]) -> "Value":
        """The value with its entries in another order or form.

        Args:
            how: a view or a selection that counts axes from the first, since forms have one more behind the value's own.
        """
        free = tuple(FreeShift(how(each.group), how(each.direction), each.sources) for each in self.free)
        return Value(self.space, how(self.forms), how(self.datum), free)


@dataclass(frozen=True)
class Square:
    """Entrywise square of a value, whose sum over a space is a length."""

    of: Value


@dataclass(frozen=True)
class Weight:
    """A tensor computed from parameters alone, and the unknown tangent of every entry."""

    ids: Ids
    """[*shape]; `ZERO` for constants."""

    @property
    def moves(self) -> bool:
        return bool((self.ids != ZERO).any())


@dataclass(frozen=True)
class Routed:
    """Rows that went to different experts: what each expert made of its own, in the experts' order."""

    parts: "tuple[tuple[Tensor, State], ...]"
    """The rows, int64[row], and their state."""


@dataclass(frozen=True)
class Fixed:
    """A tensor that does not move: data without parameters (`constant`), or data-dependent and invariant."""

    constant: bool


State = Value | Square | Weight | Fixed | Routed | tuple["Value | Square | Weight | Fixed | Routed", ...]


def is_level(tensor: Tensor, axis: int) -> bool:
    """True if all numbers along an axis are equal, up to the rounding of a factor and its inverse, as a layer scale makes."""
    apart = (tensor - tensor.narrow(axis, 0, 1)).abs()
    return bool((apart <= 1e-13 * tensor.abs().max()).all())
