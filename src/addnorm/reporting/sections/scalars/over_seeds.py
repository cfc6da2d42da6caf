"""Learned scalars of one family over seeds: how many of them training moved the same way in every seed.

A number is moved if its values over seeds differ in the mean from what weight decay alone would have left: Student's test of
one sample at each number, with Holm's correction over the numbers of the family.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from addnorm.reporting.sections.scalars.record import Entry
from addnorm.statistics.multiple_testing import holm

LEVEL = 0.05
FEWEST_SEEDS = 3
"""Below, nothing is tested."""


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """One family over its seeds."""

    numbers: int
    seeds: int
    moved: int | None
    """Numbers whose mean differs from what weight decay alone would have left; None with too few seeds."""
    mixed: int
    """Numbers that lie above it in one seed and below it in another."""


def over_seeds(entries: Sequence[Entry]) -> OverSeeds:
    """Count over seeds."""
    away = [[value - entry.decay_only for _, value in entry.finals] for entry in entries]
    seeds = min(len(each) for each in away)
    p_values = np.array([_p_value(each) for each in away])
    return OverSeeds(
        numbers=len(entries),
        seeds=seeds,
        moved=int((holm(p_values, len(entries)) < LEVEL).sum()) if seeds >= FEWEST_SEEDS else None,
        mixed=sum(min(each) < 0 < max(each) for each in away),
    )


def _p_value(values: Sequence[float]) -> float:
    """Two-sided, of the mean being zero."""
    count = len(values)
    if count < FEWEST_SEEDS:
        return 1.0
    mean = sum(values) / count
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
    if error == 0:
        return float(mean == 0)
    return float(2 * stdtr(count - 1, -abs(mean) / error))
