r"""Number of seeds that would decide an undecided comparison.

With n seeds: df = min((variants - 1)(n - 1), d_0 + n - 1, f (n - 1)), where d_0 is that of unequal variances (infinite for
equal ones) and f (n - 1) that of a noisy reference (infinite without one; both in `noise`), e = s_d / sqrt(n),
c = t(1 - alpha / 2m; df), c' = t(1 - alpha / m; df), and S = sqrt(chi2_df / df), the error of the estimated standard error.
Averaged over S:

    P(difference claimed)    = E[ Phi(|d| / e - c S) ]
    P(equivalence claimed)   = E[ max(0, Phi((margin - d) / e - c' S) - Phi((-margin - d) / e + c' S)) ]

The first is the power of the t test, 1 - F(c) of the noncentral t with noncentrality |d| / e; the second is the exact
power of two one-sided tests (Owen's Q). Both are integrated over S because scipy's noncentral t is not reliable in the left
tail.

The result is the smallest n at which the larger of the two reaches 0.8, with the observed d and s_d taken as the true ones.
It is a planning figure: the next seed changes d, and with it the result.

Source: Owen 1965, Biometrika 52, 437-446; Phillips 1990, J. Pharmacokin. Biopharm. 18, 137-144.
Differs from the source: averaged by Gauss-Legendre quadrature over the quantiles of chi2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincinv, ndtr

from addnorm.statistics.pairs.paired_tests import critical_value
from addnorm.statistics.result import FEWEST_SEEDS

POWER = 0.8
"""Probability of a decision that `seeds_needed` requires."""

MOST_SEEDS = 1_000_000
"""Largest number of seeds that is worth reporting."""

Decided = Literal["difference", "equivalence"]


@dataclass(frozen=True, kw_only=True)
class SeedsNeeded:
    """A planning figure for one comparison."""

    seeds: int
    """Seeds per variant, including those already run."""
    decides: Decided
    """The more probable decision with that many seeds."""


def difference_power(noncentrality: float, critical: float, df: float) -> float:
    """Probability that a noncentral t exceeds the critical value (on the observed side only)."""
    scale, weight = _standard_error_error(df)
    return float(weight @ ndtr(noncentrality - critical * scale))


def equivalence_power(difference: float, error: float, *, margin: float, critical: float, df: float) -> float:
    """Probability that difference ± critical value · estimated standard error falls inside ±margin."""
    scale, weight = _standard_error_error(df)
    if critical * scale[0] * error >= margin:  # the narrowest interval is too wide
        return 0.0
    upper = ndtr((margin - difference) / error - critical * scale)
    # Where the interval is wider than the margin allows (critical * scale * error > margin), upper < lower, and equivalence
    # cannot be claimed: the maximum with 0 below removes these values of S.
    lower = ndtr((-margin - difference) / error + critical * scale)
    return float(weight @ np.maximum(upper - lower, 0.0))


def seeds_needed(
    difference: float,
    sd: float,
    *,
    margin: float,
    confidence: float,
    family: int,
    variants: int,
    prior_df: float = math.inf,
    floor_df: float = math.inf,
) -> SeedsNeeded | None:
    """Smallest number of seeds that decides a comparison with probability 0.8.

    Args:
        difference: the observed difference, in nats.
        sd: standard deviation of one paired difference (one seed), in nats.
        margin: largest difference, in nats, that counts as none.
        confidence: of all claims together.
        family: number of comparisons that share the error rate.
        variants: number of variants whose residuals are pooled; at least 2.
        prior_df: d_0 of unequal variances.
        floor_df: degrees of freedom with a noisy reference, per seed after the first.

    Returns:
        None if a million seeds would not be enough.
    """

    def of_df(seeds: int) -> float:
        return max(1.0, min((variants - 1.0) * (seeds - 1), prior_df + seeds - 1, floor_df * (seeds - 1)))

    def of_difference(seeds: int) -> float:
        df = of_df(seeds)
        critical = float(critical_value(confidence, family, np.array(df)))
        return difference_power(abs(difference) / (sd / math.sqrt(seeds)), critical, df)

    def of_equivalence(seeds: int) -> float:
        # Equivalence is tested at alpha / m where no difference is claimed, which is where it is of interest.
        df, error = of_df(seeds), sd / math.sqrt(seeds)
        critical = float(critical_value(2 * confidence - 1, family, np.array(df)))
        return equivalence_power(difference, error, margin=margin, critical=critical, df=df)

    def decided(seeds: int) -> bool:
        return of_difference(seeds) >= POWER or of_equivalence(seeds) >= POWER

    # Each of the two powers rises with n near the target; where the more probable decision changes from one to the other, the
    # larger of them rises too, as a maximum of two rising functions.
    needed = fewest_seeds(decided)
    if needed is None:
        return None
    decides: Decided = "difference" if of_difference(needed) >= of_equivalence(needed) else "equivalence"
    return SeedsNeeded(seeds=needed, decides=decides)


def fewest_seeds(decided: Callable[[int], bool]) -> int | None:
    """Smallest number of seeds from three up that decides, by doubling and bisection; None if a million are not enough.

    Args:
        decided: whether so many seeds decide; true from some number on.
    """
    low, high = FEWEST_SEEDS - 1, FEWEST_SEEDS
    while not decided(high):
        low, high = high, 2 * high
        if high > MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


@cache
def _standard_error_error(df: float) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Values of S and their weights."""
    node, weight = _quadrature()
    return np.sqrt(2 * gammaincinv(df / 2, node) / df), weight


@cache
def _quadrature() -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """Gauss-Legendre nodes and weights on the unit interval."""
    # 200 nodes over the quantiles of chi2, not over its density: the integrand is then bounded on (0, 1) for every df, also for
    # df = 1, whose density is infinite at 0.
    node, weight = np.polynomial.legendre.leggauss(200)
    return (node + 1) / 2, weight / 2
