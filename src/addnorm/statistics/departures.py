"""Departures of learned numbers from what weight decay alone would have left, over seeds.

A number departs if its values over seeds differ in the mean from what weight decay alone would have left: Student's test of
one sample at each number, with Holm's correction over the numbers of the family. Redundant directions are taken out before:
what is left of the departures is orthogonal to them, and does not depend on where along them a run ended.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtr

from addnorm.statistics.multiple_testing import holm
from addnorm.statistics.result import FEWEST_SEEDS

LEVEL = 0.05
_FLOAT32 = 2.0**-24
"""Largest relative error of one rounding."""


@dataclass(frozen=True, kw_only=True)
class Departures:
    """Numbers that departed, or not, from what weight decay alone would have left."""

    seeds: int
    departed: Bool[np.ndarray, " number"] | None
    """True where the mean over seeds departs; None with fewer than `FEWEST_SEEDS` seeds."""
    mixed: Bool[np.ndarray, " number"]
    """True where the number lies above it in one seed and below it in another."""


def departures(
    finals: Float[np.ndarray, "seed number"],
    expected: Float[np.ndarray, "seed number"],
    *,
    families: Sequence[Hashable],
    steps: int,
    directions: Sequence[Float[np.ndarray, " number"]] = (),
) -> Departures:
    """Test which numbers departed.

    Args:
        finals: learned values.
        expected: what weight decay alone would have left.
        families: the family of each number; each family keeps the level by itself.
        steps: of training; each may have rounded a value to float32, which is no departure.
        directions: redundant directions, one value per number.

    Example:
        >>> finals = np.array([[2.0, 0.9], [2.1, 1.2], [1.9, 1.0]])
        >>> result = departures(finals, np.ones((3, 2)), families=["a", "a"], steps=100)
        >>> result.departed.tolist(), result.mixed.tolist()
        ([True, False], [False, True])
    """
    away = finals - expected
    if len(directions):
        basis, _ = np.linalg.qr(np.stack(directions, axis=1))
        away = away - away @ basis @ basis.T
    sizes = np.maximum(np.abs(finals), np.abs(expected)).max(axis=0, initial=0.0)
    away = np.where(np.abs(away) <= steps * _FLOAT32 * sizes, 0.0, away)
    mixed = (away.min(axis=0, initial=0.0) < 0) & (away.max(axis=0, initial=0.0) > 0)
    seeds = len(away)
    if seeds < FEWEST_SEEDS:
        return Departures(seeds=seeds, departed=None, mixed=mixed)
    p_values = _p_values(away)
    departed = np.zeros(len(mixed), dtype=bool)
    for family in dict.fromkeys(families):
        members = [place for place, other in enumerate(families) if other == family]
        departed[members] = holm(p_values[members], len(members)) < LEVEL
    return Departures(seeds=seeds, departed=departed, mixed=mixed)


@dataclass(frozen=True, kw_only=True)
class FamilyDepartures:
    """Departures of one family, counted."""

    parameter: str
    numbers: int
    seeds: int
    departed: int | None
    """None with fewer than `FEWEST_SEEDS` seeds."""
    mixed: int
    directions: int = 0
    """Redundant directions within the family."""
    shared_directions: int = 0
    """Redundant directions with numbers of other families."""
    shared_with: tuple[str, ...] = ()
    """Those other families."""


def by_family(
    result: Departures, families: Sequence[str], directions: Sequence[Float[np.ndarray, " number"]] = ()
) -> list[FamilyDepartures]:
    """Count departures and redundant directions of each family."""
    joined = [{families[int(place)] for place in np.flatnonzero(direction)} for direction in directions]
    rows = []
    for name in dict.fromkeys(families):
        members = [place for place, other in enumerate(families) if other == name]
        shared = [names - {name} for names in joined if name in names and len(names) > 1]
        rows.append(
            FamilyDepartures(
                parameter=name,
                numbers=len(members),
                seeds=result.seeds,
                departed=None if result.departed is None else int(result.departed[members].sum()),
                mixed=int(result.mixed[members].sum()),
                directions=joined.count({name}),
                shared_directions=len(shared),
                shared_with=tuple(sorted(set[str]().union(*shared))),
            )
        )
    return rows


def _p_values(away: Float[np.ndarray, "seed number"]) -> Float[np.ndarray, " number"]:
    """Two-sided, of each mean being zero; where the seeds agree exactly, 0 unless they agree on zero."""
    mean, error = away.mean(axis=0), away.std(axis=0, ddof=1) / np.sqrt(len(away))
    with np.errstate(divide="ignore", invalid="ignore"):
        tested = 2 * stdtr(len(away) - 1, -np.abs(mean) / error)
    return np.where(error > 0, tested, np.where(mean == 0, 1.0, 0.0))
