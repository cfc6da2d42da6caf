"""Combinations of learned scalars on which the loss does not depend, found from the gradients.

Let G hold one gradient per row and one scalar per column, each column scaled to length one. A direction v with G v = 0, up
to the rounding of float32, never received a gradient: the loss does not depend on it, so the single values of its scalars
mean nothing and only their combination does. No list of known redundant parametrisations is needed.

G itself has one row per step and is not kept. The worker keeps the factor R of G = Q R, which has the same null space.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from addnorm.insight.scalars.scalar import LearnedScalar
from addnorm.redundancy.algebra.rank import null_space

ROUNDING = 1e-6
"""Share of the largest gradient of a mechanism below which gradients are rounding: float32 keeps 6e-8, sums lose a digit."""
_CONNECTED = 0.05
"""Absolute value of an element of the null space's projection matrix above which two scalars belong to one direction."""
_LOCKSTEP = 0.01
"""Largest departure of a pair's difference from its decay-only value, as a share of how far the pair moved."""


@dataclass(frozen=True, kw_only=True)
class RedundantDirection:
    """A combination of scalars along which the loss does not change."""

    members: tuple[int, ...]
    """Positions of the scalars in the explanation."""
    coefficients: tuple[float, ...]
    """Change of each scalar along the direction; the largest is 1."""


def redundant_directions(
    factor: Float64[np.ndarray, "rows scalars"], steps: int, positions: Sequence[int]
) -> tuple[RedundantDirection, ...] | None:
    """Find the combinations of scalars that never received a gradient.

    Args:
        factor: R of G = Q R, where G has one row per step.
        steps: number of steps.
        positions: position of each of the factor's columns in the explanation.

    Returns:
        The directions; None with fewer steps than twice the number of driven scalars, which do not determine them.
    """
    sizes = np.linalg.norm(factor, axis=0)
    driven = np.flatnonzero(sizes > ROUNDING * sizes.max(initial=0.0)) if sizes.size else np.zeros(0, dtype=int)
    if steps < 2 * len(driven):
        return None
    if len(driven) < 2:
        return ()
    # Columns of length one, so that rounding is judged for each scalar by its own gradients. A scalar with small
    # gradients would else seem redundant by its size.
    null = null_space(factor[:, driven] / sizes[driven], rounding=ROUNDING)
    projection = null @ null.T
    directions = []
    # A basis of the null space is arbitrary: any rotation of it would mix unrelated directions. The projection does not
    # depend on the basis, and its blocks are the sets of scalars that belong together.
    for group in _connected_groups(np.abs(projection) > _CONNECTED):
        # The group's own null directions are the eigenvectors with eigenvalue one of its block of the projection.
        eigenvalues, eigenvectors = np.linalg.eigh(projection[np.ix_(group, group)])
        for vector in eigenvectors.T[eigenvalues > 0.5]:
            change = vector / sizes[driven[group]]
            change = change / change[np.abs(change).argmax()]
            members = tuple(int(positions[driven[column]]) for column in group)
            directions.append(RedundantDirection(members=members, coefficients=tuple(map(float, change))))
    return tuple(directions)


def _connected_groups(adjacency: np.ndarray) -> list[list[int]]:
    """Connected components of at least two nodes."""
    unvisited, groups = set(np.flatnonzero(adjacency.any(axis=0)).tolist()), []
    while unvisited:
        group, frontier = set(), [unvisited.pop()]
        while frontier:
            node = frontier.pop()
            group.add(node)
            neighbours = set(np.flatnonzero(adjacency[node]).tolist()) & unvisited
            unvisited -= neighbours
            frontier.extend(neighbours)
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups)


@dataclass(frozen=True, kw_only=True)
class Lockstep:
    """Two scalars that moved equally, so that their difference is what weight decay left of it."""

    members: tuple[int, int]
    """Positions of the scalars in the explanation."""
    init: float
    """Second minus first at the start."""
    final: float
    """Second minus first at the end."""
    decay_only: float
    """Difference that weight decay alone would have left."""


def lockstep(scalars: Sequence[LearnedScalar], pairs: Sequence[tuple[int, int]]) -> tuple[Lockstep, ...]:
    """Select the pairs whose difference ended where weight decay alone would have left it.

    Args:
        scalars: of one run.
        pairs: positions of two scalars each.
    """
    equal_moves = []
    for first, second in pairs:
        a, b = scalars[first], scalars[second]
        final, expected = b.final - a.final, b.decay_only - a.decay_only
        moved = max(abs(a.final - a.decay_only), abs(b.final - b.decay_only))
        if moved > 0 and abs(final - expected) <= _LOCKSTEP * moved:
            pair = Lockstep(members=(first, second), init=b.init - a.init, final=final, decay_only=expected)
            equal_moves.append(pair)
    return tuple(equal_moves)
