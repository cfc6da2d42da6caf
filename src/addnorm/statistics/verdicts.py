"""Verdicts: one family of comparisons between variants and references, decided together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from addnorm.statistics.multiple_testing import Decisions, Evidence, Look, Rule, decide
from addnorm.statistics.pairs.comparison import VariantComparison, Verdict
from addnorm.statistics.pairs.paired_tests import PairedTests
from addnorm.statistics.pairs.unpaired import unpaired_tests
from addnorm.statistics.power import seeds_needed
from addnorm.statistics.result import FEWEST_SEEDS, Result, ending_reason
from addnorm.statistics.table import LossTable
from addnorm.words import Sentence, listed, say


@dataclass(frozen=True, kw_only=True)
class ComparisonFamily:
    """All comparisons of variants with references, and the decisions on them."""

    table: LossTable
    pairs: tuple[tuple[int, int], ...]
    """Rows of the two variants of each comparison."""
    decisions: Decisions | None
    """None while no run has finished."""
    size: int
    """Comparisons that could be made. Those still to come count, so that an early peek makes no verdict easier."""
    margin: float
    confidence: float
    assumed_sd: float | None
    unpaired: bool = False
    """True if the variants share no seeds, and groups of runs are compared."""

    @staticmethod
    def of(
        table: LossTable,
        references: Sequence[str],
        margin: float,
        confidence: float,
        assumed_sd: float | None,
        looks: Sequence[Look] = (),
        chosen: Sequence[tuple[str, str]] | None = None,
    ) -> "ComparisonFamily":
        """Decide all variant × reference pairs of the table; with `looks`, from the runs that they use alone.

        With `chosen`, the family is those (variant, reference) alone, as where each variant has a control of its own. The
        other variants still tell how noisy a run is.
        """
        if looks:
            table = table.at_seeds(looks[-1].seeds)
        candidates = [row for row, name in enumerate(table.distinct) if not table.failed(name)]
        reference_rows = {table.row(name) for name in references}
        # Pairs of all candidates would be half a million of a thousand variants, of which one reference keeps 999.
        among = reference_rows.intersection(candidates)
        pairs = tuple(sorted({(min(one, row), max(one, row)) for one in among for row in candidates if row != one}))
        if chosen is not None:
            wanted = {frozenset(table.row(name) for name in pair) for pair in chosen}
            pairs = tuple(pair for pair in pairs if frozenset(pair) in wanted)
        # Pairs of variants whose runs have yet to come are in the family from the beginning. If only finished pairs counted, an
        # early look would have a smaller family and easier verdicts, which a later look could take back.
        size = max(len(pairs), 1)
        decisions = None
        unpaired = not looks and table.is_unpaired(pairs)
        if unpaired:
            tests = unpaired_tests(table.losses, table.present, np.array(pairs, dtype=int))
            rule = Rule(family=size, confidence=confidence, margin=margin)
            decisions = Evidence.of(tests, Look.only(len(table.seeds)), rule).decisions(rule)
        elif table.present.any():
            decisions = decide(
                table.losses,
                table.present,
                np.array(pairs, dtype=int).reshape(-1, 2),
                np.array(sorted(among), dtype=int),
                family=size,
                confidence=confidence,
                margin=margin,
                looks=[look for look in looks if (table.present & look.seeds).any()],
                constant=table.constant,
            )
        return ComparisonFamily(
            table=table,
            pairs=pairs,
            decisions=decisions,
            size=size,
            margin=margin,
            confidence=confidence,
            assumed_sd=assumed_sd,
            unpaired=unpaired,
        )

    @property
    def rule(self) -> Rule:
        """The rule by which the family is decided."""
        return Rule(family=self.size, confidence=self.confidence, margin=self.margin)

    @property
    def noise_df(self) -> int:
        """Residual degrees of freedom of the table."""
        return 0 if self.decisions is None else int(self.decisions.tests.noise.df)

    @property
    def noise_sd(self) -> float | None:
        """Pooled residual standard deviation of one run, in nats; None without a residual degree of freedom."""
        return float(self.decisions.tests.noise.sd) if self.decisions is not None and self.noise_df else None

    @property
    def prior_df(self) -> float:
        """d_0 of unequal variances; infinite where Bartlett's test does not reject equal ones."""
        return math.inf if self.decisions is None else float(self.decisions.tests.noise.prior_df)

    def is_noisy(self, reference: str) -> bool:
        """True if the reference is significantly noisier than the other variants, alone or with the other references."""
        if self.decisions is None:
            return False
        return bool(self.decisions.tests.floor.noisy[self.table.row(reference)])

    def variant_sd(self, variant: str) -> float | None:
        """Residual standard deviation of one variant by itself, in nats; None where it has no residual."""
        if self.decisions is None:
            return None
        sd = float(self.decisions.tests.variant_sd[self.table.row(variant)])
        return None if math.isnan(sd) else sd

    @property
    def set_apart(self) -> tuple[str, ...]:
        """Variants whose noise is far above the rest, in the table's order."""
        if self.decisions is None:
            return ()
        return tuple(
            name for name, apart in zip(self.table.distinct, self.decisions.tests.set_apart, strict=True) if apart
        )

    @property
    def seeds_differ(self) -> tuple[str, ...]:
        """References on which seeds act in another way than on the other variants, in the table's order."""
        if self.decisions is None:
            return ()
        felt = self.decisions.tests.seeds_differ.noisy
        return tuple(name for name, otherwise in zip(self.table.distinct, felt, strict=True) if otherwise)

    def place(self, name: str, other: str) -> int | None:
        """Place of a pair among the tests; None where it has none."""
        rows = self.table.row(name), self.table.row(other)
        return self._places.get((min(rows), max(rows)))

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {pair: place for place, pair in enumerate(self.pairs)}

    def compare(self, name: str, other: str) -> VariantComparison:
        """The verdict on one variant against one reference, with its numbers or the reason why there is none."""
        table = self.table
        row, column = table.row(name), table.row(other)
        accuracy, agrees = _accuracy(table, row, column)
        blank = VariantComparison(verdict=None, difference=None, interval=None, seeds_needed=None)
        if table.failed(name):
            return replace(
                blank, verdict="failed", reason=say("none_finished", variant=name, endings=_endings(table, name))
            )
        if table.failed(other):
            return replace(blank, reason=say("reference_not_finished", variant=other, endings=_endings(table, other)))
        if row == column:
            return self._with_its_repeat(blank, row)
        if self.decisions is None:
            return replace(blank, reason=say("nothing_finished"))
        tests = self.decisions.tests
        index = self._places[min(row, column), max(row, column)]
        with_constant = bool(tests.with_constant[index])
        sign = -1.0 if row > column else 1.0
        count = int(tests.count[index])
        if count == 0 or (self.unpaired and math.isnan(tests.difference[index])):
            return replace(blank, reason=say("nothing_shared", variant=name, other=other))
        comparison = replace(
            blank,
            difference=sign * float(tests.difference[index]),
            seeds=count,
            accuracy_difference=accuracy,
            accuracy_agrees=agrees,
            by_seed=_by_seed(table, row, column),
            quiet=bool(tests.quiet[index]),
        )
        error = float(tests.standard_error[index])
        if table.constant[[row, column]].all():
            return replace(comparison, reason=say("both_constant"))
        if count < FEWEST_SEEDS:
            shared = "one_shared" if count == 1 else "several_shared"
            shared = "few_runs" if self.unpaired else shared
            comparison = replace(comparison, reason=say(shared, count=count, fewest=FEWEST_SEEDS))
            repeated = next((variant for variant in (name, other) if table.is_repeated(variant)), None)
            if repeated is not None and not with_constant and self.assumed_sd is None:
                # Of printed results, other seeds may yet be run.
                return replace(comparison, reason=say("no_spread", variant=repeated))
            if not with_constant:  # there, the noise is not that of a paired difference
                comparison = self._with_seeds_needed(comparison, self._planning_sd(tests))
        elif (level := next((each for each in (name, other) if table.shows_no_spread(each)), None)) is not None:
            comparison = replace(comparison, reason=say("same_digits", variant=level))
        elif math.isnan(error):
            comparison = replace(comparison, reason=say("no_noise"))
        else:
            comparison = self._with_verdict(comparison, self.decisions, index, sign)
            if comparison.verdict == "undecided":
                alone = tests.set_apart[[row, column]].any() or with_constant or comparison.quiet
                least_df = min(float(tests.floor.df[index]), float(tests.seeds_differ.df[index]))
                floor_df = 1.0 if alone else least_df / (count - 1)
                comparison = self._with_seeds_needed(comparison, error * math.sqrt(count), floor_df)
        return self._limited_by_divergence(comparison, name, other)

    def _with_verdict(
        self, comparison: VariantComparison, decisions: Decisions, index: int, sign: float
    ) -> VariantComparison:
        low, high = (float(end) for end in decisions.interval[index])
        claimed = sign * float(decisions.claimed[index])
        verdict: Verdict = "undecided" if claimed == 0 else "better" if claimed < 0 else "worse"
        reason = None
        if decisions.equivalent[index]:
            if claimed != 0:
                # Equivalence outranks a claimed sign: a difference that is surely inside the margin is of no use, whatever its
                # sign. The sign is kept as a reason.
                reason = say("certainly_lower" if claimed < 0 else "certainly_higher")
            verdict = "equivalent"
        return replace(
            comparison,
            verdict=verdict,
            reason=reason,
            interval=(low, high) if sign > 0 else (0.0 - high, 0.0 - low),
            standard_error=float(decisions.tests.standard_error[index]),
            half_width=float(decisions.half_width[index]),
            p=float(decisions.p[index]),
            p_equivalent=float(decisions.p_equivalent[index]),
        )

    def _limited_by_divergence(self, comparison: VariantComparison, name: str, other: str) -> VariantComparison:
        """Withhold favourable verdicts: a variant that diverged at some seeds is observed only at its better ones."""
        if (seeds := self.table.diverged(name)) and comparison.verdict != "worse":
            reason = say("diverged", variant=name, seeds=listed("comma", seeds))
            return replace(comparison, verdict="failed", seeds_needed=None, seeds_needed_for=None, reason=reason)
        if (seeds := self.table.diverged(other)) and comparison.verdict not in ("better", "failed"):
            reason = say("reference_diverged", variant=other, seeds=listed("comma", seeds))
            return replace(comparison, verdict=None, seeds_needed=None, seeds_needed_for=None, reason=reason)
        return comparison

    def _with_its_repeat(self, blank: VariantComparison, row: int) -> VariantComparison:
        count = int(self.table.present[row].sum())
        level = replace(blank, difference=0.0, seeds=count, reason=say("two_names"))
        return level if count < FEWEST_SEEDS else replace(level, verdict="equivalent", interval=(0.0, 0.0))

    def _planning_sd(self, tests: PairedTests) -> float | None:
        """Standard deviation of one paired difference, for a pair with too few seeds to estimate its own."""
        if self.assumed_sd is not None:
            return math.sqrt(2) * self.assumed_sd
        return math.sqrt(2) * float(tests.noise.sd) if tests.noise.df > 0 and tests.noise.sd > 0 else None

    def _with_seeds_needed(
        self, comparison: VariantComparison, sd: float | None, floor_df: float = math.inf
    ) -> VariantComparison:
        if sd is None or comparison.difference is None or self.decisions is None:
            return comparison
        pooled = self.table.present.any(axis=1) & ~self.decisions.tests.set_apart & ~self.table.constant
        needed = seeds_needed(
            comparison.difference,
            sd,
            margin=self.margin,
            confidence=self.confidence,
            family=self.size,
            variants=max(int(pooled.sum()), 2),
            prior_df=self.prior_df,
            floor_df=floor_df,
        )
        if needed is None:
            return comparison
        return replace(comparison, seeds_needed=needed.seeds, seeds_needed_for=needed.decides)


def _accuracy(table: LossTable, row: int, column: int) -> tuple[float | None, bool | None]:
    """Difference in accuracy over the shared seeds, and whether it agrees with the difference in loss."""
    losses, accuracies, present = table.at_shared_seeds
    both = present[row] & present[column]
    if not both.any():
        return None, None
    differences = (accuracies[row] - accuracies[column])[both]
    if np.isnan(differences).any():
        return None, None
    accuracy = float(differences.mean())
    loss = float((losses[row] - losses[column])[both].mean())
    return accuracy, None if accuracy == 0 or loss == 0 else (accuracy > 0) == (loss < 0)


def _by_seed(table: LossTable, row: int, column: int) -> dict[int, float]:
    """Difference in loss at each shared seed."""
    losses, _, present = table.at_shared_seeds
    both = np.flatnonzero(present[row] & present[column])
    return {table.seeds[place]: float(losses[row, place] - losses[column, place]) for place in both}


def _endings(table: LossTable, name: str) -> Sentence:
    return listed("semicolon", (_ending(run) for run in table.runs[name]))


def _ending(run: Result) -> Sentence:
    state = say(f"state_{run.state}")
    if run.reason:
        return say("ended_because", which=run.name, state=state, reason=ending_reason(run.reason))
    return say("ended", which=run.name, state=state)
