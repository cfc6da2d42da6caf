r"""Group-sequential boundaries: how much of the error rate each of several looks at the same runs may spend.

A comparison is looked at with n_1 < … < n_K seeds, t_k = n_k / n_K. Under the null hypothesis the test statistics have, in
large samples, corr(Z_j, Z_k) = sqrt(t_j / t_k). A level alpha is spent in proportion to the seeds: look k may claim with
probability alpha (t_k - t_{k-1}) where no earlier look has claimed,

    P( |Z_1| < c_1, …, |Z_{k-1}| < c_{k-1}, |Z_k| >= c_k ) = alpha (t_k - t_{k-1}),      a_k(alpha) = 2 Phi(-c_k).

The **nominal level** a_k is what a p value of look k is compared with. The **sequential p value** q_k(p) is the smallest alpha
with a_k(alpha) >= p: "q <= alpha" is the decision of the group-sequential test at level alpha, and q takes the place of p
in Holm's procedure (`multiple_testing`). The probability of any false claim at any look is then at most alpha.

Why in proportion: large differences can be claimed at the first look, which O'Brien and Fleming's boundary forbids (with 33
comparisons it spends less than 10^-16 at 3 of 20 seeds). The price: the last of seven looks needs z = 3.45 where a single look
needs 3.17.

Source: Lan & DeMets 1983; spending in proportion to the information: Kim & DeMets 1987; the integration: Armitage et al. 1969;
the smallest level that claims as a p value: Liu & Anderson 2008; with Holm's procedure: Maurer & Bretz 2013.
Differs from the source: the boundaries are those of a normal statistic and are applied to p values of t tests, as Jennison &
Turnbull 2000 propose; `benchmarks/seeds_in_stages.py` simulates the error rate of the whole procedure.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

_NODES = 96
"""Gauss-Legendre nodes over the continuation region of each look."""
_LEVELS = np.geomspace(1e-9, 0.5, 101)
"""Levels between which nominal levels are interpolated."""
_FARTHEST, _HALVINGS = 12.0, 44
"""Bisection for a boundary: from 12 standard deviations down to 10^-12."""

Spending = Callable[[float], float]


def nominal_levels(
    fractions: Sequence[float], alpha: float, spending: Spending = lambda fraction: fraction
) -> Float[np.ndarray, " look"]:
    """Two-sided nominal level of each look.

    Args:
        fractions: t_1 < … < t_K = 1.
        alpha: level of the whole test, two-sided.
        spending: share of alpha that is spent up to a fraction.

    Example:
        >>> [round(float(level), 4) for level in nominal_levels((0.5, 1.0), 0.05)]
        [0.025, 0.0336]
    """
    spent = np.diff([0.0, *(spending(fraction) for fraction in fractions)]) * alpha
    steps = np.diff([0.0, *fractions])
    # The recursion of Armitage et al.: `density` holds the sub-density of S_k on the event that no look up to k has claimed, at
    # the quadrature nodes and times their weights, so that sums over it are integrals. S and not Z is carried because
    # increments of S_k = sqrt(t_k) Z_k are independent, with variance t_k - t_{k-1}.
    position, density = np.zeros(1), np.ones(1)  # of S_k = sqrt(t_k) Z_k within the boundaries, with quadrature weights
    node, weight = _quadrature()
    levels = []
    for fraction, step, target in zip(fractions, steps, spent, strict=True):
        sd = np.sqrt(step)
        # Both tails together, from every continuing state. The probability falls as the boundary rises, so that bisection finds
        # the one that spends exactly this look's part. At 12 standard deviations nothing is left to spend at any level that is
        # used.
        low, high = 0.0, _FARTHEST
        for _ in range(_HALVINGS):
            boundary = (low + high) / 2
            outside = ndtr((position - boundary) / sd) + ndtr((-position - boundary) / sd)
            low, high = (boundary, high) if density @ outside > target else (low, boundary)
        levels.append(2 * ndtr(-high / np.sqrt(fraction)))
        # The nodes span [-high, high] anew at each look. Were the boundary of the first look used for all, nodes beyond a
        # later, lower boundary would count as continuing, and later looks could spend too little.
        points = high * node
        kernel = np.exp(-0.5 * ((points[:, None] - position) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        position, density = points, high * weight * (kernel @ density)
    return np.array(levels)


def nominal_level(looks: tuple[int, ...], look: int, alpha: float) -> float:
    """Nominal level of one look.

    Args:
        looks: seeds at each look, ascending.
        look: its place, from 0.
        alpha: level of the whole test.
    """
    return float(_levels_of(looks, alpha)[look])


def sequential_p(
    looks: tuple[int, ...], look: int, p_value: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Smallest level at which the group-sequential test claims at this look; NaN for NaN.

    Args:
        looks: seeds at each look, ascending.
        look: place of the look, from 0.
        p_value: two-sided p values of the look.

    Example:
        >>> sequential_p((3, 6), 0, np.array([0.01])).round(6).tolist()  # the first look may spend half
        [0.02]
    """
    levels = _table(looks)[:, look]
    fractions = _fractions(looks)
    share = fractions[look] - (fractions[look - 1] if look else 0.0)
    # Levels are nearly straight lines in log-log scale over eight decades, which linear interpolation needs. q must not fall
    # below the true smallest level: the table's error (below 10^-3 relative) is far below that of the normal approximation
    # itself.
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.exp(np.interp(np.log(p_value), np.log(levels), np.log(_LEVELS)))
    # A claim at this look needs at most all of what the look may spend, whatever the others have: exact in the far tail.
    level = np.where(p_value < levels[0], p_value / share, between)
    level = np.where(p_value > levels[-1], 1.0, level)
    return np.where(np.isnan(p_value), np.nan, np.minimum(level, 1.0))


def _fractions(looks: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(seeds / looks[-1] for seeds in looks)


@cache
def _quadrature() -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    return node, weight


@cache
def _levels_of(looks: tuple[int, ...], alpha: float) -> Float[np.ndarray, " look"]:
    return nominal_levels(_fractions(looks), alpha)


@cache
def _table(looks: tuple[int, ...]) -> Float[np.ndarray, "level look"]:
    """Nominal levels of every look at each of `_LEVELS`."""
    return np.stack([nominal_levels(_fractions(looks), level) for level in _LEVELS])
