r"""Paired tests of a family of comparisons, and one error rate for all of them: Holm, simultaneous intervals, equivalence.

**Paired test** of variants a and b over n shared seeds:

    d = mean of y(a, seed) - y(b, seed),     se = max( sigma sqrt(2 / n),  sd(differences) / sqrt(n) ),     t = d / se.

Why the larger of the two: the pooled sigma (`noise`) has many degrees of freedom but is wrong for a pair that is noisier than
the rest; the pair's own estimate has only n - 1 but is right for that pair. The larger one can only make a claim harder. With
two variants both are equal and the test is the paired t test. Noisy references set a third, lower bound (`noise`).

**A constant.** A variant that was evaluated without training has one value c, whatever the seed. Against it

    d = c - mean of y(b, seed),     se = sd of y(b, seed) over its n seeds / sqrt(n),     on n - 1 degrees of freedom,

the t test of one sample. Why not sigma: the seed effect, which is common to all trained variants and absent in c, is part of
the noise here, and sigma is without it. Two constants have a difference and no test.

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

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr, stdtr, stdtrit

from addnorm.statistics.alpha_spending import nominal_level, sequential_p
from addnorm.statistics.noise import ROUNDING, Noise, NoiseFloor, at_every_seed, fit_noise, noise_floor
from addnorm.statistics.noisy_variants import SET_APART_LEVEL, Doubt, doubt, own_noise, set_apart
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

    Raises:
        InputError: no cell is present.
    """
    constant = np.zeros(present.shape[0], bool) if constant is None else constant
    apart = set_apart(values, present, level=level)
    retained = ~apart
    noise = fit_noise(values, present & retained[..., None])
    floor = noise_floor(noise, pairs, references, retained)
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
        least = np.sqrt(floor.variance / count)
    error = np.where(with_constant, own_error, np.maximum(np.maximum(own_error, pooled), least))
    # Runs that differ by one constant at every seed have a standard error of pure rounding, about 1e-16 of the loss. Testing it
    # would call any difference significant, so such a pair has no test (NaN), and `verdicts` says why.
    scale = np.max(np.abs(np.where(present, values, 0.0)), axis=(-2, -1))[..., None]
    tested = (count >= FEWEST_SEEDS) & (error > ROUNDING * scale)
    error = np.where(tested, error, np.nan)
    # Degrees of freedom are the fewest of three: pooled residuals, the prior of unequal variances with the pair's own n - 1,
    # and the floor of noisy references. At least 1, and never more than the pooled ones: an infinite prior must not turn t into
    # z.
    df = np.minimum(noise.prior_df[..., None] + count - 1, floor.df)
    df = np.clip(df, 1, np.maximum(noise.df, 1)[..., None])
    inner = retained[..., first] & retained[..., second] & ~with_constant
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
        with_constant=with_constant,
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
    # Holm's adjusted p values must not fall along the steps: a comparison is claimed only if all with smaller p are.
    # `accumulate` keeps that order; multiplying alone would let a later step claim what an earlier one had stopped.
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


@dataclass(frozen=True, kw_only=True)
class Look:
    """One of several looks at the same runs, or the only one."""

    seeds: Bool[np.ndarray, " seed"]
    """Seeds whose runs it uses."""
    planned: tuple[int, ...]
    """Seeds at every planned look; one number if there is one look only."""
    place: int
    """Place among the planned looks, from 0."""

    def p_of_procedure(self, p_value: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The level at which the whole procedure claims what has this p value at this look."""
        return sequential_p(self.planned, self.place, p_value) if len(self.planned) > 1 else p_value

    def confidence(self, confidence: float, family: int) -> float:
        """The confidence of `family` intervals at this look if all looks together have the given one."""
        if len(self.planned) == 1:
            return confidence
        return 1 - family * nominal_level(self.planned, self.place, (1 - confidence) / family)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule by which a family of comparisons is decided."""

    family: int
    """Number of comparisons that share the error rate, at least the number of pairs."""
    confidence: float
    """Of all claims together, and of all intervals together."""
    margin: float
    """Largest difference, in nats per token, that counts as none."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that the looks so far have shown about each pair."""

    tests: PairedTests
    """Those of the newest look."""
    p: Float[np.ndarray, "*batch pair"]
    """Smallest p value of any look, before Holm's procedure."""
    difference: Float[np.ndarray, "*batch pair"]
    """Mean difference at the look that has it."""
    one_sided: Float[np.ndarray, "*batch pair"]
    """Smallest p value of the two one-sided tests of any look."""
    interval: Float[np.ndarray, "*batch pair 2"]
    """Simultaneous, at the narrowest bounds of all looks."""

    @staticmethod
    def at(
        look: Look,
        values: Float[np.ndarray, "*batch variant seed"],
        present: Bool[np.ndarray, "variant seed"],
        pairs: Int[np.ndarray, "pair 2"],
        references: Int[np.ndarray, " reference"],
        rule: Rule,
        constant: Bool[np.ndarray, " variant"] | None = None,
    ) -> "Evidence":
        """Evidence of one look."""
        return Evidence.of(paired_tests(values, present & look.seeds, pairs, references, constant=constant), look, rule)

    @staticmethod
    def of(tests: PairedTests, look: Look, rule: Rule) -> "Evidence":
        """Evidence of the tests of one look."""
        confidence = look.confidence(rule.confidence, rule.family)
        return Evidence(
            tests=tests,
            p=look.p_of_procedure(tests.p_value),
            difference=tests.difference,
            one_sided=look.p_of_procedure(np.minimum(2 * equivalence_p(tests, margin=rule.margin), 1.0)) / 2,
            interval=simultaneous_intervals(tests, confidence=confidence, family=rule.family),
        )

    def then(self, newer: "Evidence") -> "Evidence":
        """Evidence with that of a further look: what a look has decided stands."""
        # What a look has decided stands: the smallest sequential p of all looks, with the difference of the look that had it,
        # so that the sign of a claim is that of its own evidence. Taking the newest difference could print "better" with the p
        # of "worse".
        stronger = (newer.p < self.p) | np.isnan(self.p)
        low = np.fmax(self.interval[..., 0], newer.interval[..., 0])
        high = np.fmin(self.interval[..., 1], newer.interval[..., 1])
        # Bounds that exclude each other (with a probability below alpha) leave the newer ones.
        meet = (low <= high)[..., None]
        return Evidence(
            tests=newer.tests,
            p=np.fmin(self.p, newer.p),
            difference=np.where(stronger, newer.difference, self.difference),
            one_sided=np.fmin(self.one_sided, newer.one_sided),
            interval=np.where(meet, np.stack([low, high], axis=-1), newer.interval),
        )

    def decisions(self, rule: Rule) -> Decisions:
        """Decide every pair."""
        p = holm(self.p, rule.family)
        claimed = np.where(p <= 1 - rule.confidence, np.sign(self.difference), 0.0)
        return Decisions(
            tests=self.tests,
            p=p,
            p_equivalent=np.minimum(2 * rule.family * self.one_sided, 1.0),
            interval=end_at_zero(self.interval, claimed),
            claimed=claimed,
            equivalent=np.max(np.abs(self.interval), axis=-1) < rule.margin,
        )


def decide(
    values: Float[np.ndarray, "*batch variant seed"],
    present: Bool[np.ndarray, "variant seed"],
    pairs: Int[np.ndarray, "pair 2"],
    references: Int[np.ndarray, " reference"],
    *,
    family: int,
    confidence: float,
    margin: float,
    looks: Sequence[Look] = (),
    constant: Bool[np.ndarray, " variant"] | None = None,
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
        looks: those of the planned looks that have been made, in order; empty if all runs are looked at once.
        constant: variants with one value that belongs to no seed; none if not given.

    Raises:
        InputError: no cell is present at a look.
    """
    rule = Rule(family=family, confidence=confidence, margin=margin)
    once = Look(seeds=np.ones(present.shape[-1], bool), planned=(present.shape[-1],), place=0)
    first, *later = [Evidence.at(look, values, present, pairs, references, rule, constant) for look in looks or (once,)]
    return functools.reduce(Evidence.then, later, first).decisions(rule)
