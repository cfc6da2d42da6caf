"""One family of comparisons: its tests, and the verdict on each pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from addnorm.lab.statistics.family import end_at_zero, equivalence_p, holm, intervals
from addnorm.lab.statistics.pairs import PairedTests, paired_tests
from addnorm.lab.statistics.power import seeds_needed
from addnorm.lab.statistics.ranking import Comparison, Verdict
from addnorm.lab.statistics.table import Table

FEWEST_SEEDS = 3
"""Fewer shared seeds than this give values and no verdict."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The tests of one family, and the verdicts they give."""

    table: Table
    pairs: tuple[tuple[int, int], ...]
    tests: PairedTests | None
    """None while no run has finished."""
    adjusted: Float[np.ndarray, " pair"]
    wide: Float[np.ndarray, "pair 2"]
    shown: Float[np.ndarray, "pair 2"]
    same: Float[np.ndarray, " pair"]
    family: int
    margin: float
    confidence: float
    assumed_sd: float | None

    @staticmethod
    def of(
        table: Table, references: Sequence[str], margin: float, confidence: float, assumed_sd: float | None
    ) -> "Judge":
        rows = dict.fromkeys(table.row(name) for name in references)
        pairs = tuple(
            dict.fromkeys(
                (min(row, other), max(row, other))
                for other in rows
                for row in range(len(table.distinct))
                if row != other and not table.failed(table.distinct[row]) and not table.failed(table.distinct[other])
            )
        )
        family = max(len(pairs), 1)
        tests, adjusted, wide, shown = None, np.empty(0), np.empty((0, 2)), np.empty((0, 2))
        same = np.empty(0)
        if table.present.any() and pairs:
            tests = paired_tests(table.losses, table.present, np.array(pairs))
            usable = (tests.count >= FEWEST_SEEDS) & (tests.standard_error > 0)
            error = np.where(usable, tests.standard_error, np.nan)
            tests = replace(tests, standard_error=error)
            df = max(tests.df, 1)
            adjusted = holm(tests.p_value, family)
            wide = intervals(tests.difference, error, confidence=confidence, family=family, df=df)
            claimed = np.where(adjusted <= 1 - confidence, np.sign(tests.difference), 0.0)
            shown = end_at_zero(wide, claimed)
            same = np.minimum(2 * family * equivalence_p(tests.difference, error, margin=margin, df=df), 1.0)
        elif table.present.any():
            tests = paired_tests(table.losses, table.present, np.empty((0, 2), dtype=int))
        return Judge(
            table=table,
            pairs=pairs,
            tests=tests,
            adjusted=adjusted,
            wide=wide,
            shown=shown,
            same=same,
            family=family,
            margin=margin,
            confidence=confidence,
            assumed_sd=assumed_sd,
        )

    def compare(self, name: str, other: str) -> Comparison:
        table = self.table
        row, column = table.row(name), table.row(other)
        accuracy, agrees = _accuracy(table, row, column)
        blank = Comparison(verdict=None, difference=None, interval=None, seeds_needed=None)
        if table.failed(name):
            return replace(blank, verdict="failed", reason=f"no run of {name} finished: {_endings(table, name)}")
        if table.failed(other):
            return replace(blank, reason=f"no run of the reference {other} finished: {_endings(table, other)}")
        if row == column:
            return self._against_its_copy(blank, row)
        if self.tests is None:
            return replace(blank, reason="no run has finished yet")

        mirrored = row > column
        index = self.pairs.index((min(row, column), max(row, column)))
        sign = -1.0 if mirrored else 1.0
        count = int(self.tests.count[index])
        if count == 0:
            return replace(blank, reason=f"{name} and {other} share no finished seed")
        found = replace(
            blank,
            difference=sign * float(self.tests.difference[index]),
            seeds=count,
            accuracy_difference=accuracy,
            accuracy_agrees=agrees,
        )
        if count < FEWEST_SEEDS:
            found = replace(found, reason=f"{_seeds(count)} shared, a verdict needs {FEWEST_SEEDS}")
            return self._withhold(self._plan(found, self._planning_sd(), len(table.distinct)), name, other)
        error = float(self.tests.standard_error[index])
        if math.isnan(error):
            reason = "the difference is the same at every seed to the last digit, so there is no noise to judge it by"
            return self._withhold(replace(found, reason=reason), name, other)
        low, high = (float(end) for end in self.shown[index])
        found = replace(
            found,
            verdict=self._verdict(index, sign),
            interval=(-high, -low) if mirrored else (low, high),
            standard_error=error,
            p=float(self.adjusted[index]),
            p_equivalent=float(self.same[index]),
        )
        if found.verdict == "equivalent" and found.p is not None and found.p <= 1 - self.confidence:
            side = "lower" if (found.difference or 0.0) < 0 else "higher"
            found = replace(found, reason=f"certainly {side}, by less than the margin")
        if found.verdict == "undecided":
            found = self._plan(found, error * math.sqrt(count), int(table.present.any(axis=1).sum()))
        return self._withhold(found, name, other)

    def _verdict(self, index: int, sign: float) -> Verdict:
        assert self.tests is not None  # callers hold a test of this index
        if max(abs(self.wide[index])) < self.margin:
            return "equivalent"
        if self.adjusted[index] <= 1 - self.confidence:
            return "better" if sign * self.tests.difference[index] < 0 else "worse"
        return "undecided"

    def _withhold(self, found: Comparison, name: str, other: str) -> Comparison:
        """A variant that diverged at some seeds is seen only where it went well: it can lose, but not win or tie."""
        if (seeds := self.table.diverged(name)) and found.verdict != "worse":
            reason = f"{name} diverged at seed {_listed(seeds)}; the surviving seeds alone flatter it"
            return replace(found, verdict="failed", seeds_needed=None, seeds_needed_for=None, reason=reason)
        if (seeds := self.table.diverged(other)) and found.verdict not in ("better", "failed"):
            reason = f"the reference {other} diverged at seed {_listed(seeds)}; the surviving seeds alone flatter it"
            return replace(found, verdict=None, seeds_needed=None, seeds_needed_for=None, reason=reason)
        return found

    def _against_its_copy(self, blank: Comparison, row: int) -> Comparison:
        count = int(self.table.present[row].sum())
        level = replace(blank, difference=0.0, seeds=count, reason="the same computation under two names")
        return level if count < FEWEST_SEEDS else replace(level, verdict="equivalent", interval=(0.0, 0.0))

    def _planning_sd(self) -> float | None:
        """Standard deviation of one paired difference where the pair itself has too few seeds to tell."""
        if self.assumed_sd is not None:
            return math.sqrt(2) * self.assumed_sd
        if self.tests is not None and self.tests.df > 0 and self.tests.sd > 0:
            return math.sqrt(2) * float(self.tests.sd)
        return None

    def _plan(self, found: Comparison, sd: float | None, variants: int) -> Comparison:
        if sd is None or found.difference is None:
            return found
        needed = seeds_needed(
            found.difference,
            sd,
            margin=self.margin,
            confidence=self.confidence,
            family=self.family,
            variants=variants,
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


def _endings(table: Table, name: str) -> str:
    return "; ".join(f"{run.name} {run.state}" + (f" ({run.reason})" if run.reason else "") for run in table.runs[name])


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)
