r"""How many seeds would decide an undecided comparison.

With n seeds: df = min((variants - 1)(n - 1), d_0 + n - 1, f (n - 1)), where d_0 is that of `evenness` (infinite for even
noise) and f (n - 1) that of `loud` (infinite without a suspect reference), e = s_d / sqrt(n), c = t(1 - alpha / 2m; df),
and S = sqrt(chi2_df / df), the error of the estimated standard error.
Averaged over S:

    chance to claim the difference   = E[ Phi(|d| / e - c S) ]
    chance to claim equivalence      = E[ max(0, Phi((margin - d) / e - c S) - Phi((-margin - d) / e + c S)) ]

The first is the power of the t test, 1 - F(c) of the noncentral t with noncentrality |d| / e; the second is the exact
power of two one-sided tests (Owen's Q). Both are integrals over S here because the noncentral t has no reliable
left tail in scipy.

The answer is the smallest n at which the larger of the two reaches 0.8, taking the observed d and s_d as true. That
makes it a planning figure: the next seed moves d, and the answer with it.

Source: Owen 1965, Biometrika 52, 437-446; Phillips 1990, J. Pharmacokin. Biopharm. 18, 137-144.
Differs from the source: averaged by Gauss-Legendre quadrature over the quantiles of chi2.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincinv, ndtr

from addnorm.statistics.family import critical_value

POWER = 0.8
"""Chance of a decision that `seeds_needed` asks for."""

MOST_SEEDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SeedsNeeded:
    """A planning figure for one comparison."""

    seeds: int
    """Seeds per variant, those already run included."""
    decides: Literal["difference", "equivalence"]
    """What that many seeds would most likely show."""


def difference_power(noncentrality: float, reach: float, df: float) -> float:
    """Chance that t exceeds `reach` when its noncentrality is given (the observed side only)."""
    scale, weight = _error_of_error(df)
    return float(weight @ ndtr(noncentrality - reach * scale))


def equivalence_power(difference: float, error: float, *, margin: float, reach: float, df: float) -> float:
    """Chance that difference ± reach · estimated error falls inside ±margin."""
    scale, weight = _error_of_error(df)
    upper = ndtr((margin - difference) / error - reach * scale)
    lower = ndtr((-margin - difference) / error + reach * scale)
    return float(weight @ np.maximum(upper - lower, 0.0))


def seeds_needed(
    difference: float,
    sd: float,
    *,
    margin: float,
    confidence: float,
    family: int,
    variants: int,
    trusted_df: float = math.inf,
    floor_df: float = math.inf,
) -> SeedsNeeded | None:
    """Smallest number of seeds that decides this comparison with a chance of 0.8.

    Args:
        difference: the observed difference, in nats.
        sd: standard deviation of one paired difference (one seed), in nats.
        variants: variants whose residuals are pooled; at least 2.
        trusted_df: d_0, how far the variants are equally noisy.
        floor_df: degrees of freedom that a suspect reference leaves, for every seed after the first.

    Returns:
        None when even a million seeds would not do (the noise is that large).
    """

    def powers(seeds: int) -> tuple[float, float]:
        df = max(1.0, min((variants - 1.0) * (seeds - 1), trusted_df + seeds - 1, floor_df * (seeds - 1)))
        reach = float(critical_value(confidence, family, np.array(df)))
        error = sd / math.sqrt(seeds)
        apart = difference_power(abs(difference) / error, reach, df)
        return apart, equivalence_power(difference, error, margin=margin, reach=reach, df=df)

    low, high = 2, 3
    while max(powers(high)) < POWER:
        low, high = high, 2 * high
        if high > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if max(powers(middle)) >= POWER else (middle, high)
    apart, inside = powers(high)
    return SeedsNeeded(seeds=high, decides="difference" if apart >= inside else "equivalence")


@cache
def _error_of_error(df: float) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Values of S and their weights."""
    node, weight = _quadrature()
    return np.sqrt(2 * gammaincinv(df / 2, node) / df), weight


@cache
def _quadrature() -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Gauss-Legendre nodes and weights on the unit interval."""
    node, weight = np.polynomial.legendre.leggauss(200)
    return (node + 1) / 2, weight / 2
