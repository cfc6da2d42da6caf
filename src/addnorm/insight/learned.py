"""Learned scalars: what they ended at, what decay alone would have left, and whether the gradient ever moved them.

Three facts are told apart for every entry:

undriven              no gradient ever reached it (to rounding): whatever moved it was decay
redundant direction   a combination of entries that no gradient ever pointed along: the loss does not depend on it, so the
                      single values of those entries say nothing, only their combination does
learned, or decayed   by which of the two made the larger part of the move

Redundant directions are read off the gradients themselves, not off a list of known cases: with each column of G (a row per
step) scaled to length one, singular values at the level of float32's rounding are directions that never had a gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from addnorm.redundancy.algebra.rank import null_space

Verdict = Literal["learned", "decayed", "undriven", "redundant direction"]

ROUNDING = 1e-6
"""Gradients below this share of the largest of their mechanism are rounding: float32 keeps 6e-8, and sums lose a digit."""
_TOGETHER = 0.05
"""Entries of the null space's projection matrix above this belong to one direction."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One learned number after training (or so far)."""

    parameter: str
    layer: int | None
    """0-based; None for a number that belongs to no layer."""
    index: tuple[int, ...]
    effective: float
    """The coefficient that the model uses because of it: for scores s_{m,i}, for softmax weights the share."""
    init: float
    final: float
    decay_only: float
    """What weight decay alone would have left of `init`."""
    decay_move: float | None
    """Part of final - init that decay made; None where only the end was printed."""
    gradient_move: float | None
    """Part of final - init that the gradient made; None where only the end was printed."""
    snr: float | None
    """Mean gradient over its standard error across steps; None before the second step or without any gradient."""
    driven: bool
    """Whether a gradient above rounding ever reached it."""

    @property
    def decay_share(self) -> float | None:
        """|decay's part| / (|decay's part| + |gradient's part|); None if nothing moved it, or if that is not known."""
        if self.decay_move is None or self.gradient_move is None:
            return None
        whole = abs(self.decay_move) + abs(self.gradient_move)
        return abs(self.decay_move) / whole if whole > 0 else None


@dataclass(frozen=True, kw_only=True)
class Direction:
    """A combination of entries along which the loss does not change."""

    entries: tuple[int, ...]
    """Places of the entries in their record."""
    coefficients: tuple[float, ...]
    """Change of each entry along the direction; the largest is 1."""


def redundant_directions(
    factor: Float64[np.ndarray, "rows entries"], steps: int, places: Sequence[int]
) -> tuple[Direction, ...] | None:
    """Directions in which no gradient ever pointed, split into groups that have no entry in common.

    Args:
        factor: R of the gradients seen, G = Q R with one row of G per step.
        steps: number of steps.
        places: where the factor's columns stand in the record.

    Returns:
        The directions; None if the steps are too few to tell (fewer than twice the driven entries).
    """
    sizes = np.linalg.norm(factor, axis=0)
    driven = np.flatnonzero(sizes > ROUNDING * sizes.max(initial=0.0)) if sizes.size else np.zeros(0, dtype=int)
    if steps < 2 * len(driven):
        return None
    if len(driven) < 2:
        return ()
    null = null_space(factor[:, driven] / sizes[driven], rounding=ROUNDING)
    projection = null @ null.T
    found = []
    for group in _groups(np.abs(projection) > _TOGETHER):
        # Eigenvectors of the group's part of the projection with eigenvalue one are the group's own null directions.
        weights, vectors = np.linalg.eigh(projection[np.ix_(group, group)])
        for vector in vectors.T[weights > 0.5]:
            change = vector / sizes[driven[group]]
            change = change / change[np.abs(change).argmax()]
            at = tuple(int(places[driven[member]]) for member in group)
            found.append(Direction(entries=at, coefficients=tuple(map(float, change))))
    return tuple(found)


def _groups(together: np.ndarray) -> list[list[int]]:
    """Connected sets of at least two."""
    left, groups = set(np.flatnonzero(together.any(axis=0)).tolist()), []
    while left:
        group, edge = set(), [left.pop()]
        while edge:
            member = edge.pop()
            group.add(member)
            fresh = set(np.flatnonzero(together[member]).tolist()) & left
            left -= fresh
            edge.extend(fresh)
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups)


def verdict(entry: Entry, *, redundant: bool) -> Verdict:
    """What may be said of one entry."""
    if not entry.driven:
        return "undriven"
    if redundant:
        return "redundant direction"
    if (
        entry.decay_move is None
    ):  # only the end is known: is it nearer to the start's remains than those are to the start?
        by_decay, by_gradient = abs(entry.decay_only - entry.init), abs(entry.final - entry.decay_only)
        return "decayed" if by_decay > by_gradient else "learned"
    share = entry.decay_share
    return "decayed" if share is not None and share > 0.5 else "learned"


@dataclass(frozen=True, kw_only=True)
class Lockstep:
    """Two entries that moved together, so that their difference is only what decay left of it."""

    entries: tuple[int, int]
    init: float
    """The second minus the first, at the start."""
    final: float
    decay_only: float


def lockstep(
    entries: Sequence[Entry], pairs: Sequence[tuple[int, int]], tolerance: float = 0.01
) -> tuple[Lockstep, ...]:
    """Of the given pairs those whose difference ended where decay alone would have left it.

    Args:
        pairs: places of two entries each, to be compared.
        tolerance: largest departure of the difference from its decay-only value, as a share of how far the pair moved.
    """
    found = []
    for first, second in pairs:
        a, b = entries[first], entries[second]
        final, expected = b.final - a.final, b.decay_only - a.decay_only
        moved = max(abs(a.final - a.decay_only), abs(b.final - b.decay_only))
        if moved > 0 and abs(final - expected) <= tolerance * moved:
            found.append(Lockstep(entries=(first, second), init=b.init - a.init, final=final, decay_only=expected))
    return tuple(found)
