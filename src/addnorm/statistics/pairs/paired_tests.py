r"""Paired tests: the difference of two variants over the seeds that both have, and its standard error.

**Paired test** of variants a and b over n shared seeds:

    d = mean of y(a, seed) - y(b, seed),     se = max( sigma sqrt(2 / n),  sd(differences) / sqrt(n) ),     t = d / se.

Why the larger of the two: the pooled sigma (`noise`) has many degrees of freedom but is wrong for a pair that is noisier than
the rest; the pair's own estimate has only n - 1 but is right for that pair. The larger one can only make a claim harder. With
two variants both are equal and the test is the paired t test.
Noisy references set a third, lower bound (`noise`), and references on which seeds act in their own way a fourth
(`seed_effects`). A pair that is significantly quieter than the rest has its own estimate alone, on n - 1 degrees of freedom
(`quiet_pairs`).

**A constant.** A variant that was evaluated without training has one value c, whatever the seed. Against it

    d = c - mean of y(b, seed),     se = sd of y(b, seed) over its n seeds / sqrt(n),     on n - 1 degrees of freedom,

the t test of one sample. Why not sigma: the seed effect, which is common to all trained variants and absent in c, is part of
the noise here, and sigma is without it. Two constants have a difference and no test.

Every function takes one table or a batch of tables with the same missing cells, so that the simulation in the tests runs the
code that ranks.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, stdtr, stdtrit

from addnorm.statistics.noise import ROUNDING, Noise, NoiseFloor, at_every_seed, fit_noise, noise_floor
from addnorm.statistics.noisy_variants import SET_APART_LEVEL, Doubt, doubt, own_noise, set_apart
from addnorm.statistics.pairs.quiet_pairs import QUIET_LEVEL, quiet_pairs
from addnorm.statistics.pairs.seed_effects import SEED_EFFECT_LEVEL, seed_effects
from addnorm.statistics.result import FEWEST_SEEDS


@dataclass(frozen=True, kw_only=True)
class PairedTests:
    """One paired test per pair of variants."""

    difference: Float[np.ndarray, "*batch pair"]
    """Mean of first minus second over the shared seeds, in nats per token; NaN without a shared seed."""
    standard_error: Float[np.ndarray, "*batch pair"]
    """Standard error of the difference; NaN where no test is possible: fewer than `FEWEST_SEEDS` shared seeds, or no noise."""
    count: Int[np.ndarray, " pair"]
    """Number of shared seeds."""
    df: Float[np.ndarray, "*batch pair"]
    """Degrees of freedom: those of the pooled residual, or fewer where variances differ or a variant is noisy."""
    noise: Noise
    """Noise of the retained variants."""
    floor: NoiseFloor
    set_apart: Bool[np.ndarray, "*batch variant"]
    """Variants whose noise is far above the rest; their comparisons rest on it, and no other does."""
    variant_sd: Float[np.ndarray, "*batch variant"]
    """Residual standard deviation of each variant by itself; NaN where it has no residual."""
    doubt: Doubt
    with_constant: Bool[np.ndarray, " pair"]
    """Pairs of which one variant is constant: the other's own spread over seeds is their only noise."""
    quiet: Bool[np.ndarray, "*batch pair"]
    """Pairs that differ by significantly less noise than the rest: their own is the only one."""
    seeds_differ: NoiseFloor
    """Least noise where seeds act on the references in a way of their own; these are its `noisy` ones."""

    def tail(self, distance: Float[np.ndarray, "*batch pair"]) -> Float[np.ndarray, "*batch pair"]:
        """Probability that the error of a difference exceeds `distance`, with what unnoticed noisy variants add."""
        return _tail(distance, self.standard_error, self.df, self.doubt)

    @property
    def p_value(self) -> Float[np.ndarray, "*batch pair"]:
        """Two-sided p value, uncorrected; NaN without a test."""
        return np.asarray(np.minimum(2 * self.tail(np.abs(self.difference)), 1.0))

    def half_width(self, confidence: float, family: int) -> Float[np.ndarray, "*batch pair"]:
        """Half of a simultaneous interval: the distance with a tail of alpha / 2m."""
        probability = (1 - confidence) / (2 * family)
        half = np.asarray(critical_value(confidence, family, self.df) * self.standard_error)
        doubtful = self.doubt.weight.any(axis=-1) & ~np.isnan(half)
        if doubtful.any():
            within = Doubt(weight=self.doubt.weight[doubtful], sd=self.doubt.sd[doubtful])
            error, df = self.standard_error[doubtful], self.df[doubtful]
            half[doubtful] = _distance(probability, error, df, within, half[doubtful])
        return half


def _tail(distance: np.ndarray, error: np.ndarray, df: np.ndarray, doubt: Doubt) -> np.ndarray:
    probability = stdtr(df, -distance / error)
    if doubt.weight.any():
        with np.errstate(invalid="ignore", divide="ignore"):
            more = doubt.weight * ndtr(-distance[..., None] / doubt.sd)
        probability = probability + np.where(doubt.weight > 0, more, 0.0).sum(axis=-1)
    return np.asarray(probability)


def _distance(
    probability: float, error: np.ndarray, df: np.ndarray, doubt: Doubt, least: np.ndarray
) -> Float[np.ndarray, " pair"]:
    """Bisect for the distance with that tail; the outer end, so that an interval is never too narrow."""
    low, high = least, np.maximum(2 * least, doubt.sd.max(axis=-1))
    # The tail decreases in the distance, with a doubt as without one. The t interval is a lower end, since a doubt only widens.
    while (open_ := _tail(high, error, df, doubt) > probability).any():
        high = np.where(open_, 2 * high, high)
    for _ in range(40):
        middle = (low + high) / 2
        inside = _tail(middle, error, df, doubt) > probability
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def paired_tests(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    *,
    constant: Bool[np.ndarray, " variant"] | None = None,
    level: float = SET_APART_LEVEL,
    share: float = 1.0,
    quiet_level: float = QUIET_LEVEL,
    seed_effect_level: float = SEED_EFFECT_LEVEL,
) -> PairedTests:
    """Test every pair of variants over the seeds that both have.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        pairs: indices of the two variants of each pair.
        references: indices of the variants whose noise many pairs share; all of them where every pair is tested.
        constant: variants with one value that belongs to no seed; none if not given.
        level: at which noisy variants are set apart; 0 sets none apart.
        share: of the doubt about unnoticed noisy variants that is counted.
        quiet_level: at which quiet pairs rest on their own; 0 for none.
        seed_effect_level: at which references that feel the seed in a way of their own are noticed; 0 for never.

    Raises:
        InputError: no cell is present.
    """
    constant = np.zeros(present.shape[0], bool) if constant is None else constant
    apart = set_apart(values, present, level=level)
    retained = ~apart
    noise = fit_noise(values, present & retained[..., None])
    floor = noise_floor(noise, pairs, references, retained)
    trained = present & (retained & ~constant)[..., None]
    seeds_differ = seed_effects(values, trained, noise, pairs, references, level=seed_effect_level)
    own = own_noise(values, present, apart)
    first, second = pairs[:, 0], pairs[:, 1]
    with_constant = constant[first] | constant[second]
    filled, known = at_every_seed(values, present, constant)
    both = known[first] & known[second]
    count = both.sum(axis=-1)
    differences = np.where(both, filled[..., first, :] - filled[..., second, :], 0.0)
    variance = own.merged(noise.sd[..., None] ** 2, apart)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = differences.sum(axis=-1) / count
        deviations = np.where(both, differences - mean[..., None], 0.0)
        own_error = np.sqrt((deviations**2).sum(axis=-1) / (count - 1) / count)
        pooled = np.sqrt((variance[..., first] + variance[..., second]) / count)
        least = np.sqrt(np.maximum(floor.variance, seeds_differ.variance) / count)
    # Runs that differ by one constant at every seed have a standard error of pure rounding, about 1e-16 of the loss. Testing it
    # would call any difference significant, so such a pair has no test (NaN), and `verdicts` says why.
    scale = np.max(np.abs(np.where(present, values, 0.0)), axis=(-2, -1))[..., None]
    inner = retained[..., first] & retained[..., second] & ~with_constant
    # A quiet pair must show some noise of its own: printed losses that differ by one constant rest on the pooled noise.
    candidates = inner & (count >= FEWEST_SEEDS) & (own_error > ROUNDING * scale)
    quiet = quiet_pairs(noise, (deviations**2).sum(axis=-1), count, candidates, level=quiet_level)
    error = np.maximum(np.maximum(own_error, pooled), least)
    error = np.where(with_constant | quiet, own_error, error)
    tested = (count >= FEWEST_SEEDS) & (error > ROUNDING * scale)
    error = np.where(tested, error, np.nan)
    # Degrees of freedom are the fewest of four: pooled residuals, the prior of unequal variances with the pair's own n - 1, and
    # the floors of references. At least 1, and never more than the pooled ones: an infinite prior must not turn t into z.
    df = np.minimum(np.minimum(noise.prior_df[..., None] + count - 1, floor.df), seeds_differ.df)
    df = np.clip(df, 1, np.maximum(noise.df, 1)[..., None])
    shared = inner & ~quiet
    unnoticed = doubt(noise, own, pairs, count, share=share, level=level)
    return PairedTests(
        difference=mean,
        standard_error=error,
        count=count,
        df=np.where(shared, df, np.maximum(count - 1.0, 1.0)),
        noise=noise,
        floor=floor,
        set_apart=apart,
        variant_sd=np.sqrt(own.merged(noise.variant_sd**2, apart)),
        doubt=replace(unnoticed, weight=np.where(shared[..., None], unnoticed.weight, 0.0)),
        with_constant=with_constant,
        quiet=quiet,
        seeds_differ=seeds_differ,
    )


def critical_value(confidence: float, family: int, df: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Half-width of a simultaneous interval in standard errors: t(1 - alpha / 2m)."""
    return np.asarray(stdtrit(df, 1 - (1 - confidence) / (2 * family)))
