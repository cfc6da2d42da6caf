"""Channels, and what operations require of them.

A channel is one number of an activation, the same for all tokens. Requirements are collected in bulk:

    equal      two channels have one basis (a sum), or dual ones (a query and its key)
    together   only channels of one group may be mixed (a head), or none (`alone`)
    kind       the largest group that is allowed: any matrix, rotations, scales, nothing
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Kind = Literal["matrix", "complex", "turn", "scale", "positive", "rotation", "centred rotation", "still"]
NOBODY = -1
"""The channel of an entry that is zero."""
KINDS: tuple[Kind, ...] = ("matrix", "rotation", "centred rotation", "positive", "still")
FIXED_ALONE: tuple[Kind, ...] = ("rotation", "centred rotation", "still")
"""Kinds that leave no scale to a channel which no other can be mixed with."""


@dataclass(frozen=True)
class AxisUse:
    """An axis of a parameter whose entries are the coordinates of channels."""

    parameter: str
    axis: int
    channels: Ids
    """Channel of every index along the axis."""
    dual: bool
    """False where the weight writes the channels (W -> T W), True where it reads them (W -> W T^-1)."""
    offset: float = 0.0
    """The coordinates are the entries plus this: a gain of 1 + w."""
    experts: int | None = None
    """Axis of a parameter that holds one weight for each expert."""
    power: int = 1
    """2 if the weight reads the channels' squares (W -> W T^-2); such channels are alone."""
    is_further: bool = False
    """True for a further scale of an axis whose entries are other channels' coordinates: what they are multiplied with next may
    be scaled, if they are scaled by the inverse."""


@dataclass(frozen=True)
class Gain:
    """y = g x, entry by entry, with a learned g."""

    parameter: str
    offset: float
    """The factor is the parameter plus this."""
    index: Ids
    """Index into the flattened parameter, per channel."""
    before: Ids
    after: Ids
    axis: int | None = None
    """The parameter's axis along which the factors lie; None for one factor of all channels."""


@dataclass
class Requirements:
    """Requirements of the operations of a graph."""

    count: int = 0
    uses: list[AxisUse] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    """Parameters that an operation without a rule reads."""
    in_place: set[tuple[str, int | None]] = field(default_factory=set)
    """Axes of parameters along which an operation reads entries that are no coordinates of channels."""
    unruled: list[Ids] = field(default_factory=list)
    """Channels that an operation without a rule reads; they may have a basis that is not known."""
    pinned: list[Ids] = field(default_factory=list)
    """Channels whose order matters: those of an output, or of factors that no axis of a weight holds."""
    images: set[int] = field(default_factory=set)
    """Channels behind an activation."""
    equalities: list[tuple[Ids, Ids, bool]] = field(default_factory=list)
    likenesses: list[tuple[Ids, Ids]] = field(default_factory=list)
    groups: list[tuple[Ids, Ids]] = field(default_factory=list)
    kinds: list[tuple[Ids, Kind]] = field(default_factory=list)
    pairs: list[tuple[Ids, Ids]] = field(default_factory=list)
    roles: list[tuple[Ids, str]] = field(default_factory=list)
    experts: list[tuple[Ids, int]] = field(default_factory=list)
    diagonals: list[Ids] = field(default_factory=list)
    """Results of gains that stay: a factor of each channel, which no matrix mixes with another."""

    def fresh(self, size: int) -> Ids:
        """Return new channels, which may all be mixed with each other."""
        made = np.arange(self.count, self.count + size)
        self.count += size
        self.together(made, np.zeros(size, np.int64))
        return made

    def equal(self, one: Ids, other: Ids, *, dual: bool = False) -> None:
        """Require one basis, or dual ones, element by element."""
        self.equalities.append((one.reshape(-1), other.reshape(-1), dual))

    def alike(self, one: Ids, other: Ids) -> None:
        """Channels that follow each other in a permutation, such as a unit before and after its activation."""
        self.likenesses.append((one.reshape(-1), other.reshape(-1)))

    def together(self, channels: Ids, groups: Ids) -> None:
        """Allow mixing only within groups."""
        self.groups.append((channels.reshape(-1), groups.reshape(-1)))

    def alone(self, channels: Ids) -> None:
        """Allow no mixing."""
        flat = channels.reshape(-1)
        self.together(flat, flat)

    def kind(self, channels: Ids, kind: Kind) -> None:
        """Restrict the group."""
        self.kinds.append((channels.reshape(-1), kind))

    def paired(self, first: Ids, second: Ids) -> None:
        """Allow only what commutes with a rotation of pairs."""
        self.pairs.append((first.reshape(-1), second.reshape(-1)))

    def by_expert(self, channels: Ids, count: int) -> None:
        """Channels of as many experts at once, each of which may have another basis."""
        self.experts.append((channels.reshape(-1), count))

    def role(self, channels: Ids, role: str) -> None:
        """Name what channels are for."""
        self.roles.append((channels.reshape(-1), role))

    def is_fixed(self, channels: Ids) -> bool:
        """True if none of these channels can be scaled alone: a norm has read them, or they stay in place."""
        fixed = [each for each, kind in self.kinds if kind in FIXED_ALONE]
        return bool(fixed) and bool(np.isin(channels, np.concatenate(fixed)).all())

    def gained(self, use: AxisUse) -> None:
        """A gain whose result may be scaled entry by entry, because what it multiplies cannot: g -> c g."""
        self.uses.append(use)
        self.alone(use.channels)
        self.diagonals.append(use.channels)
