r"""Smallest difference that `rank` decides with probability 0.8, with n seeds for each of m variants and a reference.

In a table of noise, let x be the mean difference of a pair and h the half-width of its simultaneous interval. A true difference
d is claimed at the first step of Holm's procedure if d + x > h. So the smallest d is the 80 % quantile of h - x, taken over
simulated tables that go through the tests of `rank`. Beyond 10 seeds the formula of the t test is taken: with e = sd sqrt(2 /
n),

    P(T > t(1 - alpha / 2m)) = 0.8,   T noncentral t with noncentrality d / e   on m (n - 1) df, or 2 (n - 1) unpaired,

times 1 + x sqrt(10 / n), where x is the share by which the simulation exceeds it at n = 10: like the error of an estimated sd,
what the precautions of `rank` cost falls as 1 / sqrt(n). Why not the formula alone: `rank` takes the larger of the pair's own
and the pooled error, and other precautions. Four variants with three seeds have a power of 64 % where the formula says 80 %.

Source: the formula is the power of the t test, as in `power`.
Differs from the source: simulated for few seeds. The tests simulate the power that results; `python
benchmarks/noise_of_runs.py` has all of it.
"""

import math
from functools import cache

import numpy as np

from addnorm.statistics.pairs.paired_tests import critical_value, paired_tests
from addnorm.statistics.pairs.unpaired import unpaired_tests
from addnorm.statistics.power import POWER, difference_power

_MOST_SIMULATED = 10
"""Seeds up to which tables are simulated."""
_SIMULATED, _AT_ONCE = 8000, 500
"""Simulated comparisons; the standard error of the quantile is about a hundredth."""


@cache
def smallest_difference(seeds: int, comparisons: int, confidence: float, *, paired: bool) -> float:
    """The smallest difference, in standard deviations of one run, that so many seeds per variant decide.

    Example:
        >>> round(smallest_difference(20, 1, 0.95, paired=True), 2), round(smallest_difference(20, 1, 0.95, paired=False), 2)
        (0.93, 0.91)
    """
    if seeds <= _MOST_SIMULATED:
        return _simulated_difference(seeds, comparisons, confidence, paired=paired)
    at_most_simulated = _formula_difference(_MOST_SIMULATED, comparisons, confidence, paired=paired)
    excess = smallest_difference(_MOST_SIMULATED, comparisons, confidence, paired=paired) / at_most_simulated - 1
    shrunk = excess * math.sqrt(_MOST_SIMULATED / seeds)
    return (1 + shrunk) * _formula_difference(seeds, comparisons, confidence, paired=paired)


def _formula_difference(seeds: int, comparisons: int, confidence: float, *, paired: bool) -> float:
    df = float(comparisons * (seeds - 1) if paired else 2 * (seeds - 1))
    critical = float(critical_value(confidence, comparisons, np.array(df)))
    low, high = 0.0, 2.0
    while difference_power(high, critical, df) < POWER:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if difference_power(middle, critical, df) >= POWER else (middle, high)
    return high * math.sqrt(2 / seeds)


def _simulated_difference(seeds: int, comparisons: int, confidence: float, *, paired: bool) -> float:
    # The same numbers in every call, so that the same question has the same answer.
    rng = np.random.default_rng([seeds, comparisons, paired])
    variants = comparisons + 1
    pairs = np.array([(0, other) for other in range(1, variants)])
    columns = seeds if paired else seeds * variants
    present = (
        np.ones((variants, columns), bool) if paired else np.kron(np.eye(variants, dtype=bool), np.ones(seeds, bool))
    )
    needed = []
    for _ in range(max(_SIMULATED // comparisons, 1000) // _AT_ONCE):
        values = rng.normal(size=(_AT_ONCE, variants, columns))
        tests = (
            paired_tests(values, present, pairs, np.array([0])) if paired else unpaired_tests(values, present, pairs)
        )
        needed.append(tests.half_width(confidence, comparisons) + tests.difference)
    return float(np.quantile(np.concatenate(needed), POWER))
