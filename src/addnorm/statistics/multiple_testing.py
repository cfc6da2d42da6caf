r"""One error rate for a family of comparisons: Holm, simultaneous intervals, equivalence. The tests are in `pairs`.

**Family.** With m comparisons and alpha = 1 - confidence:

- a difference is claimed if Holm's adjusted p is at most alpha; the probability of any false claim is then at most alpha;
- the interval is d ± t(1 - alpha / 2m) se (Bonferroni), so that all m hold together with the stated confidence;
- equivalence is claimed by two one-sided tests (TOST): each at alpha / m, or at alpha / 2m where a difference is claimed too.

The three never contradict each other. A Bonferroni interval that excludes zero means that the first and strictest step of
Holm's procedure rejects. Later steps may claim a direction while the Bonferroni interval still crosses zero; the interval
then ends at zero, on the claimed side, as the confidence bound of the step-down procedure does. Equivalence uses the
interval before that, and where it is claimed the interval ends at ±margin.

Why alpha / m: a difference cannot be at both ends of the margin, so that a pair's false claim of equivalence has the
probability of one of the two tests. Why not where a difference is claimed: Holm's procedure gives the level of such a pair to
the others. With alpha / m there too, families in which one pair is equal and all others differ by the margin have 6.0 % of
false claims where alpha / 2m has 4.9 %; as it is, 4.9 %. With several looks it is alpha / 2m throughout, so that what one look
has decided no later one takes back.

Source: Holm 1979, Scand. J. Statist. 6, 65-70; Schuirmann 1987, J. Pharmacokin. Biopharm. 15, 657-680;
bounds that end at zero: Strassburger & Bretz 2008, Stat. Med. 27, 4914-4927; Guilbaud 2008, Biometrical J. 50, 678-692.
Differs from the source: Strassburger & Bretz and Guilbaud prove one-sided bounds that give up the far end of intervals that
stop at zero. Here both ends are kept; the tests verify the simultaneous coverage by simulation.

Every function takes one table or a batch of tables with the same missing cells, so that the simulation in the tests runs the
code that ranks.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from addnorm.statistics.alpha_spending import nominal_level, sequential_p
from addnorm.statistics.pairs.paired_tests import PairedTests, paired_tests


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
    """Two one-sided tests, Bonferroni-adjusted over the family, and over both directions where a difference is claimed or there
    are several looks; NaN without a test."""
    interval: Float[np.ndarray, "*batch pair 2"]
    """Simultaneous; ends at zero where Holm claims a direction against which the Bonferroni interval crosses zero, and at the
    margin where equivalence is claimed."""
    half_width: Float[np.ndarray, "*batch pair"]
    """Half of the simultaneous interval of the newest look at the whole level, as if it were the only one; before any cut."""
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

    @staticmethod
    def only(seeds: int) -> "Look":
        """The only look, at that many seeds."""
        return Look(seeds=np.ones(seeds, bool), planned=(seeds,), place=0)

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
    looks: int
    """Number of planned looks."""

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
            looks=len(look.planned),
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
            looks=self.looks,
        )

    def decisions(self, rule: Rule) -> Decisions:
        """Decide every pair."""
        p = holm(self.p, rule.family)
        claimed = np.where(p <= 1 - rule.confidence, np.sign(self.difference), 0.0)
        sides = np.where((claimed != 0) | (self.looks > 1), 2, 1)
        p_equivalent = np.minimum(sides * rule.family * self.one_sided, 1.0)
        equivalent = p_equivalent < 1 - rule.confidence
        inside = np.clip(self.interval, -rule.margin, rule.margin)
        return Decisions(
            tests=self.tests,
            p=p,
            p_equivalent=p_equivalent,
            interval=end_at_zero(np.where(equivalent[..., None], inside, self.interval), claimed),
            half_width=self.tests.half_width(rule.confidence, rule.family),
            claimed=claimed,
            equivalent=equivalent,
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
    first, *later = [
        Evidence.at(look, values, present, pairs, references, rule, constant)
        for look in looks or (Look.only(present.shape[-1]),)
    ]
    return functools.reduce(Evidence.then, later, first).decisions(rule)
