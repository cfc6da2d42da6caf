"""The cells of channels on which one group acts, from what operations require.

Channels that are equal form a component. Components that no requirement tells apart form a *cell*, on which one group element
acts. A component that is dual to itself (a tied table) can only be rotated.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from addnorm.symmetry.bases.channels import FIXED_ALONE, KINDS, AxisUse, Gain, Ids, Kind, Requirements


@dataclass(frozen=True)
class Cell:
    """Channels on which one group element acts."""

    kind: Kind
    components: Ids
    """Coordinates, in order; for `complex` two by two."""
    roles: frozenset[str]
    expert: int | None = None
    """The expert whose channels these are."""

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
            case "turn":
                return 1
            case "complex" | "scale" | "positive":
                return size
            case _:
                return 0


def solved(given: Requirements) -> "Cells":
    """Return the cells. Gains that something other than a matrix reads are locked first, until none is left to lock."""
    foldable = list(range(len(given.gains)))
    backward: list[int] = []
    written, read = {use.parameter for use in given.uses}, Counter(gain.parameter for gain in given.gains)
    for gain in given.gains:
        if gain.parameter in written:  # as something else, too
            given.frozen.add(gain.parameter)
            given.in_place.add((gain.parameter, gain.axis))
    _same_parameter(given)
    while True:
        solution = _Solution(given, foldable, backward)
        gains = given.gains
        locked = [at for at in foldable if gains[at].parameter in given.frozen or not solution.only_read(gains[at])]
        if not locked:
            _tie_pairs(given, solution)
            return _Solution(given, foldable, backward, merged=True).cells()
        for at in locked:
            foldable.remove(at)
            gain = given.gains[at]
            if read[gain.parameter] > 1:  # the others of its readers would give it back, and it not
                given.frozen.add(gain.parameter)
            if gain.parameter not in given.frozen and solution.only_written(gain):
                backward.append(at)
                continue
            given.alone(gain.before)
            if gain.axis is not None and gain.parameter not in given.frozen and solution.is_fixed(gain.before):
                given.gained(AxisUse(gain.parameter, gain.axis, gain.after, dual=False, offset=gain.offset))
                given.alike(gain.before, gain.after)
            else:
                given.equal(gain.before, gain.after)
                given.pinned.append(gain.before)


def _same_parameter(given: Requirements) -> None:
    by_axis: dict[tuple[str, int, bool], list[AxisUse]] = {}
    for use in given.uses:
        by_axis.setdefault((use.parameter, use.axis, use.is_further), []).append(use)
        if use.parameter in given.frozen:
            given.kind(use.channels, "still")
        if (use.parameter, use.axis) in given.in_place:  # such as a table's rows, which tokens name
            given.kind(use.channels, "still")
            given.pinned.append(use.channels)
    for first, *others in by_axis.values():
        for other in others:
            given.equal(first.channels, other.channels, dual=first.dual != other.dual)
    for (name, axis, is_further), uses in by_axis.items():
        if is_further and len(by_axis.get((name, axis, False), [])) > 1:
            # A weight that several layers share: what the others do with its rows is not known here.
            for use in uses:
                given.kind(use.channels, "still")


def _tie_pairs(given: Requirements, solution: "_Solution") -> None:
    # Of all diagonal matrices only those with equal entries for both channels of a pair commute with its rotation.
    tied = np.zeros(solution.number, bool)
    for channels in given.diagonals:
        tied[solution.component[channels]] = True
    pairs, given.pairs = given.pairs, []
    for one, other in pairs:
        both = tied[solution.component[one]]
        given.equal(one[both], other[both])
        given.paired(one[~both], other[~both])


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
        for one, other, dual in (*given.equalities, *folded):
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
        flags = np.zeros((self.number, len(KINDS)), bool)
        for channels, kind in self.given.kinds:
            flags[self.component[channels[channels >= 0]], KINDS.index(kind)] = True
        flags[self.self_dual, KINDS.index("rotation")] = True
        return flags

    def is_fixed(self, channels: Ids) -> bool:
        """As `Requirements.is_fixed`, by the requirements of all channels that are equal to these."""
        flags = self._kind_flags()[self.component[channels]]
        return bool(flags[:, [KINDS.index(kind) for kind in FIXED_ALONE]].any(1).all())

    def only_read(self, gain: Gain) -> bool:
        """True if nothing but matrices reads a gain's result, so that they can take the gain over."""
        components = np.unique(self.component[gain.after])
        outside = np.isin(self.component, components)
        outside[gain.after] = False
        if outside.any() or self._kind_flags()[components].any() or self._is_paired(components):
            return False
        marked = np.zeros(self.given.count, bool)
        marked[gain.after] = True
        writes = [
            use for use in self.given.uses if not use.dual and bool(marked[use.channels[use.channels >= 0]].any())
        ]
        gone = (*self.foldable, *self.backward)
        staying = [each for at, each in enumerate(self.given.gains) if at not in gone and marked[each.before].any()]
        is_shifted = any(use.axis or not self._is_shift(use) for use in writes)
        return not staying and not is_shifted and self._are_whole(gain.after)

    def _is_shift(self, use: AxisUse) -> bool:
        """True for the shift of a norm, which follows its gain."""
        return not any(each.parameter == use.parameter and each.axis != use.axis for each in self.given.uses)

    def _are_whole(self, channels: Ids) -> bool:
        return len(np.unique(channels)) == len(channels)

    def _is_paired(self, components: Ids) -> bool:
        return any(bool(np.isin(self.component[one[one >= 0]], components).any()) for one, _ in self.given.pairs)

    def only_written(self, gain: Gain) -> bool:
        """True if only matrices write what a gain multiplies, so that they can take the gain over."""
        components = np.unique(self.component[gain.before])
        inside = np.isin(self.component, components)
        inside[gain.before] = False
        if (
            inside.any()
            or self._kind_flags()[components].any()
            or self._is_paired(components)
            or not self._are_whole(gain.before)
        ):
            return False
        marked = np.zeros(self.given.count, bool)
        marked[gain.before] = True
        uses = [use for use in self.given.uses if bool(marked[use.channels[use.channels >= 0]].any())]
        return bool(uses) and not any(use.dual for use in uses)

    def _number_of_experts(self) -> Ids:
        """For every component the number of experts with an element of their own each; 1 where all share what they read."""
        of_channel = np.ones(self.given.count, np.int64)
        for channels, number in self.given.experts:
            of_channel[channels] = number
        for use in self.given.uses:
            if use.experts is None:
                of_channel[use.channels[use.channels >= 0]] = 1
        made = np.full(self.number, np.iinfo(np.int64).max)
        np.minimum.at(made, self.component, of_channel)
        return made

    def cells(self) -> "Cells":
        given, count = self.given, self.number
        key = np.zeros(count, np.uint64)
        draws = np.random.default_rng(0)
        for channels, groups in given.groups:
            kept = channels >= 0
            pairs = np.unique(np.stack([self.component[channels[kept]], groups[kept]], 1), axis=0)
            numbers, place = np.unique(pairs[:, 1], return_inverse=True)
            # A component in several groups belongs with those that are in the same ones: sums of random numbers tell.
            np.add.at(key, pairs[:, 0], draws.integers(1, 2**63, len(numbers), dtype=np.uint64)[place])
        flags = self._kind_flags()
        partner = np.full(count, -1, np.int64)
        broken = np.zeros(count, bool)
        for one, other in given.pairs:
            a, b = self.component[one], self.component[other]
            broken[a[(partner[a] >= 0) & (partner[a] != b)]] = True
            partner[a] = b
        paired = partner >= 0
        low = np.where(paired, np.minimum(np.arange(count), partner), -1)
        experts = self._number_of_experts()
        # What stays leaves the others of its group free to mix with each other.
        stays = flags[:, KINDS.index("still")].astype(np.int64)
        _, cell = np.unique(np.stack([key.view(np.int64), low, experts, stays], 1), axis=0, return_inverse=True)
        cell = cell.reshape(-1)
        named: dict[str, np.ndarray] = {}
        for channels, role in given.roles:
            named.setdefault(role, np.zeros(count, bool))[self.component[channels[channels >= 0]]] = True
        order = np.argsort(cell, kind="stable")
        bounds = np.flatnonzero(np.diff(cell[order], prepend=-1, append=-1))
        made = []
        for start, stop in itertools.pairwise(bounds.tolist()):
            members = order[start:stop]
            restricted: NDArray[np.bool_] = np.asarray(flags[members].any(0))
            kind = _kind_of(restricted, len(members), bool(paired[members].all()), bool(broken[members].any()))
            if kind != "still":
                whole = Cell(kind, members, frozenset(role for role, at in named.items() if at[members].any()))
                number = int(experts[members[0]])
                made += [whole] if number == 1 else [replace(whole, expert=each) for each in range(number)]
        return Cells(
            given=given,
            component=self.component,
            parity=self.parity,
            cells=tuple(made),
            folded=tuple(given.gains[at] for at in self.foldable),
            absorbed=tuple(given.gains[at] for at in self.backward),
        )


def _kind_of(flags: NDArray[np.bool_], size: int, is_paired: bool, is_broken: bool) -> Kind:
    has = dict(zip(KINDS, flags.tolist(), strict=True))
    if has["still"] or is_broken:
        return "still"
    rotates = has["rotation"] or has["centred rotation"]
    if has["positive"] or (rotates and size == 1):
        return "still" if rotates else "positive"
    if is_paired:
        if size != 2 or has["centred rotation"]:
            return "still"
        return "turn" if rotates else "complex"
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

    def unruled(self) -> set[str]:
        """Parameters that an operation without a rule reads, or that write or read channels which one reads."""
        given = self.given
        reached = np.zeros(int(self.component.max(initial=-1)) + 1, bool)
        for channels in given.unruled:
            reached[self.component[channels[channels >= 0]]] = True
        uses = (use for use in given.uses if reached[self.component[use.channels[use.channels >= 0]]].any())
        return {*given.frozen, *(use.parameter for use in uses)}

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
    if cell.kind in ("rotation", "centred rotation") and not cell.roles:
        return "basis of the stream"
    if cell.roles & {"query", "key"}:
        return "basis of queries and keys"
    if "value" in cell.roles:
        return "basis of values"
    return "scale of a unit" if cell.kind in ("scale", "positive") else "basis between two linear maps"
