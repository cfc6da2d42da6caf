"""What is known of one tensor of the graph, whatever the data."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from addnorm.redundancy.graph.shift import Shift


@dataclass(frozen=True)
class Loose:
    """A move that depends on the data, known only by where it comes from.

    It vanishes if `source` does not move; and it is constant along an axis of the value if `source` does not vary
    along the axis that `axes` gives for it. A key's shift makes such a move of the scores: q . s, unknown, but the
    same for all keys.
    """

    source: Shift
    axes: Mapping[int, int]
    """Axis of the value -> axis of the source."""
    escape: "Escape | None" = None
    """A milder demand than that `source` vanish."""
    path: tuple[Hashable, ...] = ()
    """Which unknown move this is: the product that made it, and how it has been turned since. Equal paths are equal moves
    up to `factor`, so that they can cancel; an empty one is equal to none."""
    factor: float = 1.0

    def turned(self, axes: Mapping[int, int], step: Hashable = None) -> "Loose":
        """The move of a value whose axes have been moved about.

        Args:
            axes: the value's axes that are still axes, old -> new.
            step: what was done, if that alone says where each entry went; None otherwise.
        """
        escape = None
        if self.escape is not None and self.escape.axes <= axes.keys():
            escape = Escape(self.escape.shift, frozenset(axes[axis] for axis in self.escape.axes))
        kept = {axes[axis]: own for axis, own in self.axes.items() if axis in axes}
        path = (*self.path, step) if self.path and step is not None else ()
        return Loose(self.source, kept, escape, path, self.factor)


@dataclass(frozen=True)
class Escape:
    """If `shift` vanishes, the loose move that this belongs to is constant along `axes` of the value: a query's shift that
    meets in every key the same number."""

    shift: Shift
    axes: frozenset[int]


@dataclass(frozen=True)
class Plane:
    """Combinations of a value's entries along one axis that no data change, as a layer norm leaves them: sum over the axis of
    normal . value is the same number everywhere."""

    axis: int
    normals: Callable[[], torch.Tensor]
    """Orthonormal rows, float64 [normal, entries of the axis]; found when first asked for."""


_SMALLEST = 0.01
"""Smallest factor after which a masked entry is still hidden from a softmax: exp(-100) of the rest at least."""


@dataclass(frozen=True)
class Mask:
    """Entries of a value that do not move as the value says."""

    hides: bool
    """Whether they are at most -1e4, so that a softmax or a maximum does not see them; else they hold anything."""
    endless: bool = False
    """Whether they are minus infinity, which nothing finite moves."""
    gain: float = 1.0
    """What they have been multiplied by since: hidden is what was filled with at most -1e4, times a gain not far below one."""
    place: str = ""
    """Which entries: the name of the condition that chose them; empty if not known any more."""
    stray: tuple[Shift, ...] = ()
    """What moves them nevertheless: shifts added after they were filled in."""

    def times(self, factor: float) -> "Mask":
        """The mask of a value multiplied by a number."""
        gain, up = self.gain * factor, factor > 0
        hides = self.hides and ((self.endless and up) or gain >= _SMALLEST)
        return replace(self, gain=gain, hides=hides, endless=self.endless and up)

    def elsewhere(self) -> "Mask":
        """The mask of a value whose entries have been moved about."""
        return replace(self, place="")


def together(masks: Sequence[Mask]) -> Mask:
    """The mask of several, side by side or one over the other."""
    return Mask(
        all(mask.hides for mask in masks),
        all(mask.endless for mask in masks),
        min(mask.gain for mask in masks),
        stray=tuple(shift for mask in masks for shift in mask.stray),
    )


Fact = str
"""What else is known: `maximum` along an axis (minus infinity only if all of it is masked); a condition that holds `nowhere`,
or just where the value of that name is minus infinity (`endless NAME`); or nothing.
"""


@dataclass(frozen=True)
class Value:
    """One tensor: it moves by shift(delta) + loose moves, exactly, for all data and all delta that meet the demands
    so far.
    """

    shape: tuple[int, ...]
    shift: Shift
    known: torch.Tensor | None = None
    """Its numbers before the move, if they depend on no data (floating ones in float64)."""
    loose: tuple[Loose, ...] = ()
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Axis -> its sum along that axis (size 1 there), where that is known although the numbers are not: softmax's
    rows.
    """
    masked: Mask | None = None
    """Entries that do not move as stated. If the mask hides them, a softmax or a maximum may still read the value."""
    name: str = ""
    """Of the node that made it."""
    plane: Plane | None = None
    fact: Fact = ""

    def brought_up(self, now: Callable[[Shift], Shift]) -> "Value":
        """The same with all shifts in terms of what is still free."""
        if not self.moves:
            return self
        masked = self.masked
        if masked is not None and masked.stray:
            masked = replace(masked, stray=tuple(each for shift in masked.stray if (each := now(shift))))
        return replace(self, shift=now(self.shift), loose=brought_up(self.loose, now), masked=masked)

    @property
    def moves(self) -> bool:
        """Whether anything can move it."""
        return bool(self.shift) or bool(self.loose) or (self.masked is not None and bool(self.masked.stray))

    @property
    def seen_by_softmax(self) -> bool:
        """Whether a softmax or a maximum would see entries that do not move as stated."""
        return self.masked is not None and not self.masked.hides


@dataclass(frozen=True)
class Out:
    """What a rule says of one output."""

    shift: Shift
    loose: tuple[Loose, ...] = ()
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    masked: Mask | None = None
    plane: Plane | None = None
    fact: Fact = ""


def brought_up(loose: tuple[Loose, ...], now: Callable[[Shift], Shift]) -> tuple[Loose, ...]:
    """Loose moves in terms of what is still free, without those that cannot be any more."""
    kept = []
    for each in loose:
        source = now(each.source)
        if source:
            escape = each.escape and Escape(now(each.escape.shift), each.escape.axes)
            kept.append(replace(each, source=source, escape=escape))
    return tuple(kept)
