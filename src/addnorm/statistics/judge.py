"""One family of comparisons: its tests, and the verdict on each pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from addnorm.statistics.decisions import Decisions, decide
from addnorm.statistics.pairs import FEWEST_SEEDS, PairedTests
from addnorm.statistics.power import seeds_needed
from addnorm.statistics.ranking import Comparison, Verdict
from addnorm.statistics.result import Result
from addnorm.statistics.table import Table
from addnorm.words import Sentence, listed, say


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The tests of one family, and the verdicts they give."""

    table: Table
    pairs: tuple[tuple[int, int], ...]
    decisions: Decisions | None
    """None while no run has finished."""
    family: int
    """Comparisons that could be made. Those still to come count, so that looking early makes no verdict cheaper."""
    margin: float
    confidence: float
    assumed_sd: float | None

    @staticmethod
    def of(
        table: Table, references: Sequence[str], margin: float, confidence: float, assumed_sd: float | None
    ) -> "Judge":
        """Decide all variant × reference pairs of the table."""
        alive = [row for row, name in enumerate(table.distinct) if not table.failed(name)]
        against = {table.row(name) for name in references}
        pairs = tuple(pair for pair in combinations(alive, 2) if against.intersection(pair))
        family = max(len(pairs), 1)
        decisions = None
        if table.present.any():
            decisions = decide(
                table.losses,
                table.present,
                np.array(pairs, dtype=int).reshape(-1, 2),
                np.array(sorted(against.intersection(alive)), dtype=int),
                family=family,
                confidence=confidence,
                margin=margin,
            )
        return Judge(
            table=table,
            pairs=pairs,
            decisions=decisions,
            family=family,
            margin=margin,
            confidence=confidence,
            assumed_sd=assumed_sd,
        )

    @property
    def noise_df(self) -> int:
        """Residual degrees of freedom of the table."""
        return 0 if self.decisions is None else self.decisions.tests.noise.df

    @property
    def noise_sd(self) -> float | None:
        """Pooled residual standard deviation of one run, in nats; None without a residual degree of freedom."""
        return float(self.decisions.tests.noise.sd) if self.decisions is not None and self.noise_df else None

    @property
    def trusted_df(self) -> float:
        """How far the variants are equally noisy; infinite where nothing speaks against it."""
        return math.inf if self.decisions is None else float(self.decisions.tests.noise.trusted_df)

    def is_suspect(self, reference: str) -> bool:
        """Whether the reference looks noisier than the other variants, alone or with the other references."""
        if self.decisions is None:
            return False
        return bool(self.decisions.tests.floor.suspect[self.table.row(reference)])

    def variant_sd(self, variant: str) -> float | None:
        """Residual standard deviation of one variant by itself, in nats; None where it has no residual."""
        if self.decisions is None:
            return None
        sd = float(self.decisions.tests.noise.variant_sd[self.table.row(variant)])
        return None if math.isnan(sd) else sd

    def compare(self, name: str, other: str) -> Comparison:
        table = self.table
        row, column = table.row(name), table.row(other)
        accuracy, agrees = _accuracy(table, row, column)
        blank = Comparison(verdict=None, difference=None, interval=None, seeds_needed=None)
        if table.failed(name):
            return replace(
                blank, verdict="failed", reason=say("none_finished", variant=name, endings=_endings(table, name))
            )
        if table.failed(other):
            return replace(blank, reason=say("reference_not_finished", variant=other, endings=_endings(table, other)))
        if row == column:
            return self._against_its_copy(blank, row)
        if self.decisions is None:
            return replace(blank, reason=say("nothing_finished"))
        tests = self.decisions.tests
        index = self.pairs.index((min(row, column), max(row, column)))
        sign = -1.0 if row > column else 1.0
        count = int(tests.count[index])
        if count == 0:
            return replace(blank, reason=say("nothing_shared", variant=name, other=other))
        found = replace(
            blank,
            difference=sign * float(tests.difference[index]),
            seeds=count,
            accuracy_difference=accuracy,
            accuracy_agrees=agrees,
        )
        error = float(tests.standard_error[index])
        if count < FEWEST_SEEDS:
            shared = "one_shared" if count == 1 else "several_shared"
            found = replace(found, reason=say(shared, count=count, fewest=FEWEST_SEEDS))
            found = self._plan(found, self._planning_sd(tests))
        elif math.isnan(error):
            found = replace(found, reason=say("no_noise"))
        else:
            found = self._judged(found, self.decisions, index, sign)
            if found.verdict == "undecided":
                floor_df = float(tests.floor.df[index]) / (count - 1)
                found = self._plan(found, error * math.sqrt(count), floor_df)
        return self._withhold(found, name, other)

    def _judged(self, found: Comparison, decisions: Decisions, index: int, sign: float) -> Comparison:
        low, high = (float(end) for end in decisions.interval[index])
        claimed = sign * float(decisions.claimed[index])
        verdict: Verdict = "undecided" if claimed == 0 else "better" if claimed < 0 else "worse"
        reason = None
        if decisions.equivalent[index]:
            if claimed != 0:
                reason = say("certainly_lower" if claimed < 0 else "certainly_higher")
            verdict = "equivalent"
        return replace(
            found,
            verdict=verdict,
            reason=reason,
            interval=(low, high) if sign > 0 else (0.0 - high, 0.0 - low),
            standard_error=float(decisions.tests.standard_error[index]),
            p=float(decisions.p[index]),
            p_equivalent=float(decisions.p_equivalent[index]),
        )

    def _withhold(self, found: Comparison, name: str, other: str) -> Comparison:
        """A variant that diverged at some seeds is seen only where it went well: it can lose, but not win or tie."""
        if (seeds := self.table.diverged(name)) and found.verdict != "worse":
            reason = say("diverged", variant=name, seeds=listed("comma", seeds))
            return replace(found, verdict="failed", seeds_needed=None, seeds_needed_for=None, reason=reason)
        if (seeds := self.table.diverged(other)) and found.verdict not in ("better", "failed"):
            reason = say("reference_diverged", variant=other, seeds=listed("comma", seeds))
            return replace(found, verdict=None, seeds_needed=None, seeds_needed_for=None, reason=reason)
        return found

    def _against_its_copy(self, blank: Comparison, row: int) -> Comparison:
        count = int(self.table.present[row].sum())
        level = replace(blank, difference=0.0, seeds=count, reason=say("two_names"))
        return level if count < FEWEST_SEEDS else replace(level, verdict="equivalent", interval=(0.0, 0.0))

    def _planning_sd(self, tests: PairedTests) -> float | None:
        """Standard deviation of one paired difference where the pair itself has too few seeds to tell."""
        if self.assumed_sd is not None:
            return math.sqrt(2) * self.assumed_sd
        return math.sqrt(2) * float(tests.noise.sd) if tests.noise.df > 0 and tests.noise.sd > 0 else None

    def _plan(self, found: Comparison, sd: float | None, floor_df: float = math.inf) -> Comparison:
        if sd is None or found.difference is None:
            return found
        needed = seeds_needed(
            found.difference,
            sd,
            margin=self.margin,
            confidence=self.confidence,
            family=self.family,
            variants=int(self.table.present.any(axis=1).sum()),
            trusted_df=self.trusted_df,
            floor_df=floor_df,
        )
        if needed is None:
            return found
        return replace(found, seeds_needed=needed.seeds, seeds_needed_for=needed.decides)


def _accuracy(table: Table, row: int, column: int) -> tuple[float | None, bool | None]:
    both = table.present[row] & table.present[column]
    if not both.any():
        return None, None
    accuracy = (table.accuracies[row] - table.accuracies[column])[both]
    if np.isnan(accuracy).any():
        return None, None
    apart = float(accuracy.mean())
    loss = float((table.losses[row] - table.losses[column])[both].mean())
    return apart, None if apart == 0 or loss == 0 else (apart > 0) == (loss < 0)


def _endings(table: Table, name: str) -> Sentence:
    return listed("semicolon", (_ending(run) for run in table.runs[name]))


def _ending(run: Result) -> Sentence:
    state = say(f"state_{run.state}")
    if run.reason:
        return say("ended_because", which=run.name, state=state, reason=run.reason)
    return say("ended", which=run.name, state=state)
