r"""Pairs that differ by less noise than the rest: they rest on their own.

The differences of two variants that are nearly copies of each other, or of two that were paired on purpose, scatter far less
than the pooled noise says. With the larger of the two as standard error, such a pair gains nothing: a tenth of the noise and a
difference of five of its own standard deviations was found in 0 % of simulated studies.

**Quiet.** Let q = sum over the shared seeds of (difference - mean)^2 / 2, on n - 1 degrees of freedom. The contrast of two
variants within a seed is orthogonal to every variant's level and every seed's effect, so that under equal, normal noise q is a
part of the additive model's residual sum of squares RSS that is independent of the rest, with any cells missing, and

    F = (q / (n - 1)) / ((RSS - q) / (df - n + 1))

has the F distribution with n - 1 and df - n + 1 degrees of freedom. A pair with at least four shared seeds is quiet if F is
significantly small: Holm's procedure over all pairs that are tested, at 2 % (1 - 2 / V) with V retained variants. Two variants
show one noise only, and no pair is quiet.

**Its test.** se = sd(differences) / sqrt(n) on n - 1 degrees of freedom, the plain paired t test; floors of noisy references,
degrees of freedom of unequal variances and the doubt about unnoticed noisy variants say nothing about it.

Why so low a level: of pairs that are as noisy as all others, one that is called quiet has an error estimated at a tenth or
less of the true one, and nearly always makes a false claim. So the level is added to the error rate where noise is even. Where
it is not, a pair's own t test is valid whatever the others' noise is. Why four seeds: with three, a pair with a tenth of the
noise is recognised in one study of twenty, and the level would be spent for nothing.

Source: the F test of a part of the residuals: Scheffé 1959, chapter 2; Holm 1979.
Differs from the source: none; the level is this project's, chosen by simulation (`benchmarks/instrument.py`).
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import fdtr

from addnorm.statistics.noise import Noise

QUIET_LEVEL = 0.02
"""Probability that any of many pairs of equal noise is called quiet."""
_FEWEST_SEEDS = 4
"""Shared seeds below which too little can be recognised."""


def quiet_pairs(
    noise: Noise,
    squares: Float[np.ndarray, "*batch pair"],
    count: Int[np.ndarray, " pair"],
    tested: Bool[np.ndarray, "*batch pair"],
    *,
    level: float = QUIET_LEVEL,
) -> Bool[np.ndarray, "*batch pair"]:
    """Find the pairs whose differences scatter significantly less than the rest.

    Args:
        noise: noise of the retained variants.
        squares: sum of the squared deviations of each pair's differences from their mean.
        count: shared seeds of each pair.
        tested: pairs that can be called quiet: both variants are retained, and a test is possible.
        level: of all pairs together.
    """
    df = np.maximum(count - 1, 1)
    rest_df = noise.df[..., None] - df
    retained = (noise.own_df > 0).sum(axis=-1, keepdims=True)
    own = squares / 2
    rest = np.maximum((noise.sd**2 * noise.df)[..., None] - own, 0.0)
    possible = tested & (count >= _FEWEST_SEEDS) & (rest_df > 0) & (retained > 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = fdtr(df, np.maximum(rest_df, 1), (own / df) / (rest / np.maximum(rest_df, 1)))
    p = np.where(possible & ~np.isnan(p), p, 1.0)
    # Holm's steps by hand: `holm` is in `multiple_testing`, which imports this. Step k is allowed level / (pairs - k).
    order = np.argsort(p, axis=-1, kind="stable")
    steps = np.maximum(possible.sum(axis=-1, keepdims=True) - np.arange(p.shape[-1]), 1)
    small = np.take_along_axis(p, order, axis=-1) * steps <= level * (1 - 2 / np.maximum(retained, 2))
    quiet = np.zeros(p.shape, bool)
    np.put_along_axis(quiet, order, np.logical_and.accumulate(small, axis=-1), axis=-1)
    return quiet & possible
