"""What is known of one tensor of the graph, whatever the data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from addnorm.audit.shift import Shift


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
    masked: bool = False
    """Some entries are at most -1e4 and do not move as stated: only a softmax or a maximum may still read it."""

    @property
    def moves(self) -> bool:
        """Whether anything can move it."""
        return bool(self.shift) or bool(self.loose)


@dataclass(frozen=True)
class Out:
    """What a rule says of one output."""

    shift: Shift
    loose: tuple[Loose, ...] = ()
    sums: Mapping[int, torch.Tensor] = field(default_factory=dict)
    masked: bool = False
