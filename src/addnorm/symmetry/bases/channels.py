"""Channels, what operations require of them, and the cells of channels on which one group acts.

A channel is one number of an activation, the same for all tokens. Requirements are collected in bulk:

    equal      two channels have one basis (a sum), or dual ones (a query and its key)
    together   only channels of one group may be mixed (a head), or none (`alone`)
    kind       the largest group that is allowed: any matrix, rotations, scales, nothing

Channels that are equal form a component. Components that no requirement tells apart form a *cell*, on which one group element
acts. A component that is dual to itself (a tied table) can only be rotated.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

Ids = NDArray[np.int64]
Kind = Literal["matrix", "complex", "scale", "positive", "rotation", "centred rotation", "still"]
NOBODY = -1
"""The channel of an entry that is zero."""
_KINDS: tuple[Kind, ...] = ("matrix", "rotation", "centred rotation", "positive", "still")


@dataclass(frozen=True)
class AxisUse:
    """An axis of a parameter whose entries are the coordinates of channels."""

    parameter: str
    axis: int
    channels: Ids
    """Channel of every index along the axis."""
    dual: bool
    """False where the weight writes the channels (W -> T W), True where it reads them (W -> W T^-1)."""


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


@dataclass(frozen=True)
class Cell:
    """Channels on which one group element acts."""

    kind: Kind
    components: Ids
    """Coordinates, in order; for `complex` two by two."""
    roles: frozenset[str]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.components)

    @property
    def dimension(self) -> int:
        """Number of parameters of its group."""
        size = self.size
        match self.kind:
            case "matrix":
                return size * size
            case "rotation":
                return size * (size - 1) // 2
            case "centred rotation":
                return (size - 1) * (size - 2) // 2
            case "complex" | "scale" | "positive":
                return size
            case _:
                return 0


@dataclass
class Requirements:
    """Requirements of the operations of a graph."""

    count: int = 0
    uses: list[AxisUse] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    """Parameters that an operation without a rule reads."""
    pinned: list[Ids] = field(default_factory=list)
    """Channels whose order matters, such as those of an output."""
    images: set[int] = field(default_factory=set)
    """Channels behind an activation."""
    _equal: list[tuple[Ids, Ids, bool]] = field(default_factory=list)
    _alike: list[tuple[Ids, Ids]] = field(default_factory=list)
    _together: list[tuple[Ids, Ids]] = field(default_factory=list)
    _kinds: list[tuple[Ids, int]] = field(default_factory=list)
    _pairs: list[tuple[Ids, Ids]] = field(default_factory=list)
    _roles: list[tuple[Ids, str]] = field(default_factory=list)

    def fresh(self, size: int) -> Ids:
        """Return new channels, which may all be mixed with each other."""
        made = np.arange(self.count, self.count + size)
        self.count += size
        self.together(made, np.zeros(size, np.int64))
        return made

    def equal(self, one: Ids, other: Ids, *, dual: bool = False) -> None:
        """Require one basis, or dual ones, element by element."""
        self._equal.append((one.reshape(-1), other.reshape(-1), dual))

    def alike(self, one: Ids, other: Ids) -> None:
        """Channels that follow each other in a permutation, such as a unit before and after its activation."""
        self._alike.append((one.reshape(-1), other.reshape(-1)))

    def together(self, channels: Ids, groups: Ids) -> None:
        """Allow mixing only within groups."""
        self._together.append((channels.reshape(-1), groups.reshape(-1)))

    def alone(self, channels: Ids) -> None:
        """Allow no mixing."""
        flat = channels.reshape(-1)
        self.together(flat, flat)

    def kind(self, channels: Ids, kind: Kind) -> None:
        """Restrict the group."""
        self._kinds.append((channels.reshape(-1), _KINDS.index(kind)))

    def paired(self, first: Ids, second: Ids) -> None:
        """Allow only what commutes with a rotation of pairs."""
        self._pairs.append((first.reshape(-1), second.reshape(-1)))

    def role(self, channels: Ids, role: str) -> None:
        """Name what channels are for."""
        self._roles.append((channels.reshape(-1), role))

    def solve(self) -> "Cells":
        """Return the cells. Gains that something other than a matrix reads are locked first, until none is left to lock."""
        foldable = list(range(len(self.gains)))
        backward: list[int] = []
        self._same_parameter()
        while True:
            solved = _Solution(self, foldable, backward)
            locked = [at for at in foldable if not solved.only_read(self.gains[at])]
            if not locked:
                return _Solution(self, foldable, backward, merged=True).cells()
            for at in locked:
                foldable.remove(at)
                gain = self.gains[at]
                if solved.only_written(gain):
                    backward.append(at)
                    continue
                self.equal(gain.before, gain.after)
                self.alone(gain.before)

    def _same_parameter(self) -> None:
        by_axis: dict[tuple[str, int], list[AxisUse]] = {}
        for use in self.uses:
            by_axis.setdefault((use.parameter, use.axis), []).append(use)
            if use.parameter in self.frozen:
                self.kind(use.channels, "still")
        for first, *others in by_axis.values():
            for other in others:
                self.equal(first.channels, other.channels, dual=first.dual != other.dual)


class _Solution:
    """Components of equal channels, with their parity and requirements."""

    def __init__(
        self, given: Requirements, foldable: Iterable[int], backward: Iterable[int], *, merged: bool = False
    ) -> None:
        self.given = given
        self.foldable, self.backward = tuple(foldable), tuple(backward)
        count = given.count
        # Without its gain, a norm's result has the basis of what it read.
        gone = (*self.backward, *(self.foldable if merged else ()))
        folded = [(given.gains[at].before, given.gains[at].after, False) for at in gone]
        rows, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for one, other, dual in (*given._equal, *folded):
            kept = (one >= 0) & (other >= 0)
            a, b = one[kept], other[kept]
            rows += [2 * a, 2 * a + 1]
            columns += [2 * b + dual, 2 * b + (not dual)]
        first, second = np.concatenate(rows), np.concatenate(columns)
        links = sparse.csr_matrix((np.ones(len(first), bool), (first, second)), shape=(2 * count, 2 * count))
        _, label = csgraph.connected_components(links, directed=False)
        even, odd = label[::2], label[1::2]
        self.component = np.unique(np.minimum(even, odd), return_inverse=True)[1] if count else np.zeros(0, np.int64)
        self.parity = even > odd
        self.number = int(self.component.max()) + 1 if count else 0
        self.self_dual = np.zeros(self.number, bool)
        self.self_dual[self.component[even == odd]] = True

    def _kind_flags(self) -> np.ndarray:
        flags = np.zeros((self.number, len(_KINDS)), bool)
        for channels, kind in self.given._kinds:
            flags[self.component[channels[channels >= 0]], kind] = True
        flags[self.self_dual, _KINDS.index("rotation")] = True
        return flags

    def only_read(self, gain: Gain) -> bool:
        """True if nothing but matrices reads a gain's result, so that they can take the gain over."""
        mine = np.unique(self.component[gain.after])
        outside = np.isin(self.component, mine)
        outside[gain.after] = False
        if outside.any() or self._kind_flags()[mine].any() or self._is_paired(mine):
            return False
        marked = np.zeros(self.given.count, bool)
        marked[gain.after] = True
        writes = [
            use for use in self.given.uses if not use.dual and bool(marked[use.channels[use.channels >= 0]].any())
        ]
        return not any(use.axis or not self._is_shift(use) for use in writes) and self._are_whole(gain.after)

    def _is_shift(self, use: AxisUse) -> bool:
        """True for the shift of a norm, which follows its gain."""
        return not any(each.parameter == use.parameter and each.axis != use.axis for each in self.given.uses)

    def _are_whole(self, channels: Ids) -> bool:
        return len(np.unique(channels)) == len(channels)

    def _is_paired(self, components: Ids) -> bool:
        return any(bool(np.isin(self.component[one[one >= 0]], components).any()) for one, _ in self.given._pairs)

    def only_written(self, gain: Gain) -> bool:
        """True if only matrices write what a gain multiplies, so that they can take the gain over."""
        mine = np.unique(self.component[gain.before])
        inside = np.isin(self.component, mine)
        inside[gain.before] = False
        if inside.any() or self._kind_flags()[mine].any() or self._is_paired(mine) or not self._are_whole(gain.before):
            return False
        marked = np.zeros(self.given.count, bool)
        marked[gain.before] = True
        uses = [use for use in self.given.uses if bool(marked[use.channels[use.channels >= 0]].any())]
        return bool(uses) and not any(use.dual for use in uses)

    def cells(self) -> "Cells":
        given, count = self.given, self.number
        key = np.zeros(count, np.uint64)
        draws = np.random.default_rng(0)
        for channels, groups in given._together:
            kept = channels >= 0
            pairs = np.unique(np.stack([self.component[channels[kept]], groups[kept]], 1), axis=0)
            numbers, place = np.unique(pairs[:, 1], return_inverse=True)
            # A component in several groups belongs with those that are in the same ones: sums of random numbers tell.
            np.add.at(key, pairs[:, 0], draws.integers(1, 2**63, len(numbers), dtype=np.uint64)[place])
        flags = self._kind_flags()
        partner = np.full(count, -1, np.int64)
        broken = np.zeros(count, bool)
        for one, other in given._pairs:
            a, b = self.component[one], self.component[other]
            broken[a[(partner[a] >= 0) & (partner[a] != b)]] = True
            partner[a] = b
        paired = partner >= 0
        low = np.where(paired, np.minimum(np.arange(count), partner), -1)
        _, cell = np.unique(np.stack([key.view(np.int64), low], 1), axis=0, return_inverse=True)
        cell = cell.reshape(-1)
        named: dict[str, np.ndarray] = {}
        for channels, role in given._roles:
            named.setdefault(role, np.zeros(count, bool))[self.component[channels[channels >= 0]]] = True
        order = np.argsort(cell, kind="stable")
        bounds = np.flatnonzero(np.diff(cell[order], prepend=-1, append=-1))
        made = []
        for start, stop in itertools.pairwise(bounds.tolist()):
            members = order[start:stop]
            mine: NDArray[np.bool_] = np.asarray(flags[members].any(0))
            kind = _kind_of(mine, len(members), bool(paired[members].all()), bool(broken[members].any()))
            if kind != "still":
                made.append(Cell(kind, members, frozenset(role for role, at in named.items() if at[members].any())))
        return Cells(
            given=given,
            component=self.component,
            parity=self.parity,
            cells=tuple(made),
            folded=tuple(given.gains[at] for at in self.foldable),
            absorbed=tuple(given.gains[at] for at in self.backward),
        )


def _kind_of(flags: NDArray[np.bool_], size: int, is_paired: bool, is_broken: bool) -> Kind:
    has = dict(zip(_KINDS, flags.tolist(), strict=True))
    if has["still"] or is_broken:
        return "still"
    rotates = has["rotation"] or has["centred rotation"]
    if has["positive"] or (rotates and size == 1):
        return "still" if rotates else "positive"
    if is_paired:
        return "still" if rotates or size != 2 else "complex"
    if rotates:
        # An ordinary norm beside one that removes the mean: no rotation but those that keep both.
        return "centred rotation" if has["centred rotation"] else "rotation"
    return "scale" if size == 1 else "matrix"


@dataclass(frozen=True)
class Cells:
    """The cells of a graph, and the gains that its matrices can take over."""

    given: Requirements
    component: Ids
    """Of every channel."""
    parity: np.ndarray
    """True for channels that transform by the dual of their component's element."""
    cells: tuple[Cell, ...]
    folded: tuple[Gain, ...]
    """Gains that the matrices behind them can take over."""
    absorbed: tuple[Gain, ...]
    """Factors that the matrices before them can take over."""

    def sizes(self) -> dict[str, int]:
        """The number of directions, by family."""
        made: dict[str, int] = {}
        for name, gains in (("gain into the next matrix", self.folded), ("learned factor of a branch", self.absorbed)):
            numbers: dict[str, int] = {}
            for gain in gains:
                numbers[gain.parameter] = len(np.unique(gain.index))
            if numbers:
                made[name] = sum(numbers.values())
        for cell in self.cells:
            if cell.dimension:
                name = family_of(cell)
                made[name] = made.get(name, 0) + cell.dimension
        return made


def family_of(cell: Cell) -> str:
    """The name of a cell's family."""
    if cell.kind in ("rotation", "centred rotation"):
        return "basis of the stream"
    if cell.roles & {"query", "key"}:
        return "basis of queries and keys"
    if "value" in cell.roles:
        return "basis of values"
    return "scale of a unit" if cell.kind in ("scale", "positive") else "basis between two linear maps"
