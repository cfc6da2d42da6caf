r"""Paired differences, and how far noise alone would carry them.

    d = mean over shared seeds of y(a, seed) - y(b, seed)
    se = max( sigma * sqrt(2 / n),  sd(differences) / sqrt(n) ),      t = d / se  on the pooled degrees of freedom

Why the larger of the two: the pooled noise has many degrees of freedom but is wrong for a pair that is noisier than the
rest; the pair's own has only n - 1 but is right for that pair. Taking the larger can only make a claim harder. With two
variants both are the same number and the test is the paired t test. References that look noisier than the rest set a
third floor (`loud`).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr

from addnorm.statistics.additive import Noise, fit_noise
from addnorm.statistics.noisy_references import Floor, floor_of

FEWEST_SEEDS = 3
"""Fewer shared seeds than this give values and no verdict."""


@dataclass(frozen=True, kw_only=True)
class PairedTests:
    """One test per pair, for one table or a batch of tables with the same missing cells."""

    difference: Float[np.ndarray, "*batch pair"]
    """Mean of first minus second over the shared seeds, in nats per token; not a number without a shared seed."""
    standard_error: Float[np.ndarray, "*batch pair"]
    """Standard error of the difference; not a number where there is no test: under `FEWEST_SEEDS` shared seeds, or with
    no noise at all."""
    count: Int[np.ndarray, " pair"]
    """Seeds that both have."""
    df: Float[np.ndarray, "*batch pair"]
    """Degrees of freedom of each test: the pooled residual's, or fewer where variants differ in noise (`evenness`) or
    a reference is suspect (`loud`)."""
    noise: Noise
    floor: Floor

    @property
    def p_value(self) -> Float[np.ndarray, "*batch pair"]:
        """Two-sided chance of a difference this large from noise alone, uncorrected; not a number without a test."""
        return np.asarray(2 * stdtr(self.df, -np.abs(self.difference / self.standard_error)))


def paired_tests(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
) -> PairedTests:
    """Test every pair of variants over the seeds that both have.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        pairs: indices of the two variants of each pair.
        references: indices of the variants whose noise many pairs share; all of them where every pair is tested.

    Raises:
        InputError: no cell is present.
    """
    noise = fit_noise(values, present)
    floor = floor_of(noise, pairs, references)
    first, second = pairs[:, 0], pairs[:, 1]
    both = present[first] & present[second]
    count = both.sum(axis=-1)
    apart = np.where(both, values[..., first, :] - values[..., second, :], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = apart.sum(axis=-1) / count
        spread = np.where(both, apart - difference[..., None], 0.0)
        own = np.sqrt((spread**2).sum(axis=-1) / (count - 1) / count)
        pooled = noise.sd[..., None] * np.sqrt(2 / count)
        least = np.sqrt(floor.variance / count)
    # Rounding leaves a few ulp of spread between runs that differ by an exact constant; that is no noise estimate.
    error = np.maximum(np.maximum(own, pooled), least)
    scale = np.max(np.abs(np.where(present, values, 0.0)), axis=(-2, -1))[..., None]
    tested = (count >= FEWEST_SEEDS) & (error > 8 * np.finfo(float).eps * scale)
    error = np.where(tested, error, np.nan)
    df = np.clip(np.minimum(noise.trusted_df[..., None] + count - 1, floor.df), 1, max(noise.df, 1))
    return PairedTests(difference=difference, standard_error=error, count=count, df=df, noise=noise, floor=floor)
