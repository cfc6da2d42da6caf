r"""Paired tests of a family of comparisons, and one error rate for all of them: Holm, simultaneous intervals, equivalence.

**Paired test** of variants a and b over n shared seeds:

    d = mean of y(a, seed) - y(b, seed),     se = max( sigma sqrt(2 / n),  sd(differences) / sqrt(n) ),     t = d / se.

Why the larger of the two: the pooled sigma (`noise`) has many degrees of freedom but is wrong for a pair that is noisier than
the rest; the pair's own estimate has only n - 1 but is right for that pair. The larger one can only make a claim harder. With
two variants both are equal and the test is the paired t test. Noisy references set a third, lower bound (`noise`).

**Family.** With m comparisons and alpha = 1 - confidence:

- a difference is claimed if Holm's adjusted p is at most alpha; the probability of any false claim is then at most alpha;
- the interval is d ± t(1 - alpha / 2m) se (Bonferroni), so that all m hold together with the stated confidence;
- equivalence is claimed if that interval lies inside ±margin: two one-sided tests (TOST), each at alpha / 2m.

The three never contradict each other. A Bonferroni interval that excludes zero means that the first and strictest step of
Holm's procedure rejects. Later steps may claim a direction while the Bonferroni interval still crosses zero; the interval
then ends at zero, on the claimed side, as the confidence bound of the step-down procedure does. Equivalence uses the
interval before that.

Source: Holm 1979, Scand. J. Statist. 6, 65-70; Schuirmann 1987, J. Pharmacokin. Biopharm. 15, 657-680;
bounds that end at zero: Strassburger & Bretz 2008, Stat. Med. 27, 4914-4927; Guilbaud 2008, Biometrical J. 50, 678-692.
Differs from the source: Strassburger & Bretz and Guilbaud prove one-sided bounds that give up the far end of intervals that
stop at zero. Here both ends are kept; the tests verify the simultaneous coverage by simulation.

Every function takes one table or a batch of tables with the same missing cells, so that the simulation in the tests runs the
code that ranks.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, stdtr, stdtrit

from addnorm.statistics.noise import ROUNDING, Noise, NoiseFloor, fit_noise, noise_floor
from addnorm.statistics.noisy_variants import SET_APART_LEVEL, Doubt, doubt, own_noise, set_apart

FEWEST_SEEDS = 3
"""Shared seeds that a verdict needs; with fewer only values are shown."""


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
    found = stdtr(df, -distance / error)
    if doubt.weight.any():
        with np.errstate(invalid="ignore", divide="ignore"):
            more = doubt.weight * ndtr(-distance[..., None] / doubt.sd)
        found = found + np.where(doubt.weight > 0, more, 0.0).sum(axis=-1)
    return np.asarray(found)


def _distance(
    probability: float, error: np.ndarray, df: np.ndarray, doubt: Doubt, least: np.ndarray
) -> Float[np.ndarray, " pair"]:
    """Bisect for the distance with that tail; the outer end, so that an interval is never too narrow."""
    low, high = least, np.maximum(2 * least, doubt.sd.max(axis=-1))
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
    level: float = SET_APART_LEVEL,
    share: float = 1.0,
) -> PairedTests:
    """Test every pair of variants over the seeds that both have.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        pairs: indices of the two variants of each pair.
        references: indices of the variants whose noise many pairs share; all of them where every pair is tested.
        level: at which noisy variants are set apart; 0 sets none apart.
        share: of the doubt about unnoticed noisy variants that is counted.

    Raises:
        InputError: no cell is present.
    """
    apart = set_apart(values, present, level=level)
    retained = ~apart
    noise = fit_noise(values, present & retained[..., None])
    floor = noise_floor(noise, pairs, references, retained)
    own = own_noise(values, present, apart)
    first, second = pairs[:, 0], pairs[:, 1]
    both = present[first] & present[second]
    count = both.sum(axis=-1)
    differences = np.where(both, values[..., first, :] - values[..., second, :], 0.0)
    variance = own.merged(noise.sd[..., None] ** 2, apart)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = differences.sum(axis=-1) / count
        deviations = np.where(both, differences - mean[..., None], 0.0)
        own_error = np.sqrt((deviations**2).sum(axis=-1) / (count - 1) / count)
        pooled = np.sqrt((variance[..., first] + variance[..., second]) / count)
        least = np.sqrt(floor.variance / count)
    error = np.maximum(np.maximum(own_error, pooled), least)
    scale = np.max(np.abs(np.where(present, values, 0.0)), axis=(-2, -1))[..., None]
    tested = (count >= FEWEST_SEEDS) & (error > ROUNDING * scale)
    error = np.where(tested, error, np.nan)
    df = np.minimum(noise.prior_df[..., None] + count - 1, floor.df)
    df = np.clip(df, 1, np.maximum(noise.df, 1)[..., None])
    inner = retained[..., first] & retained[..., second]
    unnoticed = doubt(noise, own, pairs, count, share=share, level=level)
    return PairedTests(
        difference=mean,
        standard_error=error,
        count=count,
        df=np.where(inner, df, np.maximum(count - 1.0, 1.0)),
        noise=noise,
        floor=floor,
        set_apart=apart,
        variant_sd=np.sqrt(own.merged(noise.variant_sd**2, apart)),
        doubt=replace(unnoticed, weight=np.where(inner[..., None], unnoticed.weight, 0.0)),
    )


def holm(p_values: Float[np.ndarray, "*batch pair"], family: int) -> Float[np.ndarray, "*batch pair"]:
    """P values adjusted by Holm's step-down procedure.

    Args:
        p_values: uncorrected; NaN where no test was possible, which counts as 1.
        family: number of comparisons that could be made, at least as many as are given. The rest count as p = 1.

    Example:
        >>> holm(np.array([0.01, 0.04]), family=2).tolist()
        [0.02, 0.04]
    """
    known = np.where(np.isnan(p_values), 1.0, p_values)
    order = np.argsort(known, axis=-1, kind="stable")
    steps = family - np.arange(known.shape[-1])
    stepped = np.maximum.accumulate(np.take_along_axis(known, order, axis=-1) * steps, axis=-1)
    adjusted = np.empty_like(known)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=-1)
    return adjusted


def critical_value(confidence: float, family: int, df: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Half-width of a simultaneous interval in standard errors: t(1 - alpha / 2m)."""
    return np.asarray(stdtrit(df, 1 - (1 - confidence) / (2 * family)))


def simultaneous_intervals(tests: PairedTests, *, confidence: float, family: int) -> Float[np.ndarray, "*batch pair 2"]:
    """Bonferroni intervals: all hold together with at least the stated confidence."""
    half = tests.half_width(confidence, family)
    return np.stack([tests.difference - half, tests.difference + half], axis=-1)


def end_at_zero(
    interval: Float[np.ndarray, "*batch pair 2"], claimed: Float[np.ndarray, "*batch pair"]
) -> Float[np.ndarray, "*batch pair 2"]:
    """End intervals at zero where they cross it against the claimed direction (-1 lower, +1 higher, 0 none)."""
    low = np.where(claimed > 0, np.maximum(interval[..., 0], 0.0), interval[..., 0])
    high = np.where(claimed < 0, np.minimum(interval[..., 1], 0.0), interval[..., 1])
    return np.stack([low, high], axis=-1)


def equivalence_p(tests: PairedTests, *, margin: float) -> Float[np.ndarray, "*batch pair"]:
    """Uncorrected p value of the two one-sided tests: the larger of the two.

    The simultaneous interval lies inside ±margin exactly if 2 · family · p < 1 - confidence.
    """
    return np.minimum(tests.tail(margin - np.abs(tests.difference)), 1.0)


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """One decision per pair. Without a test, p is 1, the interval is NaN and nothing is claimed."""

    tests: PairedTests
    p: Float[np.ndarray, "*batch pair"]
    """Holm-adjusted."""
    p_equivalent: Float[np.ndarray, "*batch pair"]
    """Two one-sided tests, Bonferroni-adjusted over the family and both directions; NaN without a test."""
    interval: Float[np.ndarray, "*batch pair 2"]
    """Simultaneous; ends at zero where Holm claims a direction against which the Bonferroni interval crosses zero."""
    claimed: Float[np.ndarray, "*batch pair"]
    """-1 where the first of the pair is claimed to be lower, +1 higher, 0 neither."""
    equivalent: Bool[np.ndarray, "*batch pair"]


def decide(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    *,
    family: int,
    confidence: float,
    margin: float,
) -> Decisions:
    """Decide every pair of a family.

    Args:
        values: losses; entries outside `present` are ignored.
        present: which variant has a counted run at which seed.
        pairs: indices of the two variants of each pair.
        references: indices of the variants that the others are compared with.
        family: number of comparisons that share the error rate, at least the number of pairs.
        confidence: of all claims together, and of all intervals together.
        margin: largest difference, in nats per token, that counts as none.

    Raises:
        InputError: no cell is present.
    """
    tests = paired_tests(values, present, pairs, references)
    p = holm(tests.p_value, family)
    wide = simultaneous_intervals(tests, confidence=confidence, family=family)
    claimed = np.where(p <= 1 - confidence, np.sign(tests.difference), 0.0)
    one_sided = equivalence_p(tests, margin=margin)
    return Decisions(
        tests=tests,
        p=p,
        p_equivalent=np.minimum(2 * family * one_sided, 1.0),
        interval=end_at_zero(wide, claimed),
        claimed=claimed,
        equivalent=np.max(np.abs(wide), axis=-1) < margin,
    )
