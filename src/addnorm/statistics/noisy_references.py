r"""References that are noisier than the rest: a doubt that all their comparisons share.

For a set A of references (each one alone, and all of them together) with residual variance s_A^2 on d_A degrees of
freedom, and s_o^2, d_o those of all other variants, A is suspect when F = s_A^2 / s_o^2 is so large that even noise
makes it so with a chance of 5 % (one alone) or 10 % (all together). A pair of a suspect reference and another variant
then has at least

    se^2 = (s_A^2 + s_o^2) / n    on at most    (s_A^2 + s_o^2)^2 / (s_A^4 / d_A + s_o^4 / d_o)    degrees of freedom,

and a pair within A has 2 s_A^2 / n on d_A.

Why: one reference is in as many comparisons as there are variants, and its noise is the same in all of them. When its
variance is underestimated they are all wrong together, which neither the pooled noise nor a pair's own corrects at
three seeds. Everything here only raises a standard error or lowers the degrees of freedom, so no claim becomes cheaper.

Source: Satterthwaite 1946, Biometrics Bull. 2, 110-114; the F test of two variances: any text.
Differs from the source: used as a floor, and only where the F test rejects. Residuals of the additive model share the
seeds' levels, so the two variances are not quite independent; what comes of it is simulated in the tests.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import fdtrc

from addnorm.statistics.additive import Noise

LEVEL_ALONE = 0.05
"""Chance that an evenly noisy reference is suspected by itself."""
LEVEL_TOGETHER = 0.10
"""Chance that evenly noisy references are suspected together."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What suspect references ask of every pair, for one table or a batch of tables with the same missing cells."""

    variance: Float[np.ndarray, "*batch pair"]
    """Least variance of the paired difference at one seed; 0 without a suspect."""
    df: Float[np.ndarray, "*batch pair"]
    """Most degrees of freedom; infinite without a suspect."""
    suspect: Bool[np.ndarray, "*batch variant"]
    """Which references are suspect, alone or together."""


def floor_of(noise: Noise, pairs: Int[np.ndarray, "pair 2"], references: Int[np.ndarray, " reference"]) -> Floor:
    """Find suspect references and what they ask of their pairs.

    Args:
        noise: of the table.
        pairs: indices of the two variants of each pair.
        references: indices of the variants whose noise many pairs share.
    """
    batch, variants = noise.variant_sd.shape[:-1], noise.variant_sd.shape[-1]
    variance = np.zeros((*batch, len(pairs)))
    df = np.full((*batch, len(pairs)), np.inf)
    suspect = np.zeros((*batch, variants), bool)
    known = noise.variant_df >= 0.5
    squares = np.where(known, noise.variant_sd**2, 0.0) * noise.variant_df
    sets = [(np.array([one]), LEVEL_ALONE) for one in references]
    if len(references) > 0:
        sets.append((references, LEVEL_TOGETHER))
    for members, level in sets:
        inside = np.zeros(variants, bool)
        inside[members] = True
        # Two variants mirror each other's residuals; with fewer than two others there is nothing to hold A against.
        if not known[inside].all() or (known & ~inside).sum() < 2:
            continue
        here_df, rest_df = float(noise.variant_df[inside].sum()), float(noise.variant_df[known & ~inside].sum())
        here, rest = squares[..., inside].sum(axis=-1) / here_df, squares[..., known & ~inside].sum(axis=-1) / rest_df
        with np.errstate(invalid="ignore", divide="ignore"):
            loud = (here > rest) & (fdtrc(here_df, rest_df, here / rest) < level)
            mixed_df = (here + rest) ** 2 / (here**2 / here_df + rest**2 / rest_df)
        count = inside[pairs].sum(axis=-1)
        for ends, needed, most in ((1, here + rest, mixed_df), (2, 2 * here, np.full(batch, here_df))):
            at = loud[..., None] & (count == ends)
            variance = np.where(at, np.maximum(variance, needed[..., None]), variance)
            df = np.where(at, np.minimum(df, most[..., None]), df)
        suspect |= loud[..., None] & inside
    return Floor(variance=variance, df=df, suspect=suspect)
