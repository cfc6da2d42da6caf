"""The state of a stream of proposals, which follows from its runs in the order in which they came.

A **group** is the runs of one variant in one role: as a proposal, or as the baseline. A kept variant has both, and its runs as
a proposal never count for the baseline.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from addnorm.errors import InputError
from addnorm.statistics.stream.rule import StreamRule, log_e_value

Role = Literal["baseline", "proposal"]
Why = Literal["evidence", "futile", "most_runs", "diverged"]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposal and what became of it."""

    name: str
    number: int
    """Place in the stream, from 1."""
    baseline: str
    runs: int
    verdict: Literal["keep", "discard", "open"]
    why: Why | None
    """None while it is open."""
    difference: float | None
    """Mean minus the baseline's, in the unit of the metric; None if it diverged."""
    log_e: float | None
    """Natural logarithm of its e-value."""
    log_bar: float
    """That of the e-value at which it is kept."""

    def to_json(self) -> dict[str, Any]:
        """The proposal as plain JSON values; evidence as powers of ten."""
        return {
            "proposal": self.name,
            "number": self.number,
            "baseline": self.baseline,
            "runs": self.runs,
            "verdict": self.verdict,
            "why": self.why,
            "difference": self.difference,
            "log10_evidence": None if self.log_e is None else self.log_e / math.log(10),
            "log10_needed": self.log_bar / math.log(10),
        }


@dataclass
class VariantRuns:
    """Runs of one variant in one role; lower is better."""

    variant: str
    values: list[float] = field(default_factory=list)

    @property
    def squares(self) -> float:
        """Sum of squared deviations from the mean."""
        return float(((np.array(self.values) - self.mean) ** 2).sum()) if self.values else 0.0

    @property
    def mean(self) -> float:
        """Mean of its runs."""
        return float(np.mean(self.values))


class StreamState:
    """A stream after some of its runs.

    Args:
        rule: fixed at its beginning.
        baseline: the first baseline.
        sign: 1 if lower is better, -1 if higher is.
    """

    def __init__(self, rule: StreamRule, baseline: str, sign: int) -> None:
        self.rule, self.sign = rule, sign
        self.baseline = VariantRuns(baseline)
        self.baselines = [self.baseline]
        self.runs: dict[tuple[str, int], float | None] = {}
        """Loss of every recorded run; None of one that diverged."""
        self.proposals: list[Proposal] = []
        self.against = 0
        """Proposals that were decided against the present baseline."""
        self._open: VariantRuns | None = None
        self._names = {baseline}
        # Of groups that get no more runs: a stream of thousands of proposals must not sum all of them after every run.
        self._past_squares, self._past_df = 0.0, 0

    @property
    def keeps(self) -> int:
        """Proposals that were kept."""
        return sum(proposal.verdict == "keep" for proposal in self.proposals)

    @property
    def target(self) -> int:
        """Runs that the baseline has to have before the next proposal."""
        return self.rule.baseline_target(self.against)

    @property
    def missing(self) -> int:
        """Runs of the baseline that are to come before the next proposal; 0 while a proposal is open."""
        return 0 if self.open_name else max(self.target - len(self.baseline.values), 0)

    @property
    def open_name(self) -> str | None:
        """The proposal that is open."""
        return None if self._open is None else self._open.variant

    def role_of(self, variant: str) -> Role | None:
        """The role in which the next run of a variant counts; None if it does not count now."""
        if variant == self.baseline.variant:
            return "baseline" if self.missing else None
        if self.open_name is not None:
            return "proposal" if variant == self.open_name else None
        return None if variant in self._names or self.missing else "proposal"

    def add(self, variant: str, seed: int, loss: float | None) -> Proposal | None:
        """Record a run that counts, and decide.

        Returns:
            The proposal after its run; None for a run of the baseline.

        Raises:
            InputError: the run does not count now, or the baseline's runs show no noise.
        """
        role = self.role_of(variant)
        if role is None or (variant, seed) in self.runs:
            raise InputError(f"run {variant}/{seed}: expected one that counts now, got one that does not.")
        if role == "baseline" and loss is None:
            raise InputError(
                f"run {variant}/{seed}: expected a finished run of the baseline, got one that diverged. A baseline has to "
                "train at every seed."
            )
        self.runs[variant, seed] = loss
        if role == "baseline":
            self.baseline.values.append(self.sign * float(loss or 0.0))
            if not self.missing and self._pooled()[0] <= 0:
                raise InputError(
                    f"baseline {variant}: expected runs that differ, got equal losses, which tell no noise."
                )
            return None
        return self._proposed(variant, loss)

    def _proposed(self, variant: str, loss: float | None) -> Proposal:
        if self._open is None:
            self._open = VariantRuns(variant)
            self._names.add(variant)
            self.proposals.append(self._proposal(0, "open", None, None))
        group, number = self._open, len(self.proposals)
        before = self.keeps
        if loss is None:
            self.proposals[-1] = self._proposal(len(group.values) + 1, "discard", "diverged", None)
        else:
            group.values.append(self.sign * loss)
            runs = len(group.values)
            variance, df = self._pooled()
            gain = np.array(self.baseline.mean - group.mean)
            log_e = log_e_value(gain, runs, len(self.baseline.values), np.array(variance), df)
            keep, discard = (bool(each) for each in self.rule.decide(log_e, runs, number, before))
            verdict: Literal["keep", "discard", "open"] = "keep" if keep else "discard" if discard else "open"
            futile: Why = "most_runs" if runs >= self.rule.most_runs else "futile"
            self.proposals[-1] = self._proposal(
                runs, verdict, "evidence" if keep else futile if discard else None, float(log_e)
            )
        decided = self.proposals[-1]
        if decided.verdict != "open":
            self._close(group)
            self._open = None
            self.against += 1
        if decided.verdict == "keep":
            self._close(self.baseline)
            self.baseline, self.against = VariantRuns(variant), 0
            self.baselines.append(self.baseline)
        return decided

    def _close(self, group: VariantRuns) -> None:
        self._past_squares += group.squares
        self._past_df += max(len(group.values) - 1, 0)

    def _proposal(
        self, runs: int, verdict: Literal["keep", "discard", "open"], why: Why | None, log_e: float | None
    ) -> Proposal:
        group = self._open
        assert group is not None
        number = max(len(self.proposals), 1) if runs else len(self.proposals) + 1
        return Proposal(
            name=group.variant,
            number=number,
            baseline=self.baseline.variant,
            runs=runs,
            verdict=verdict,
            why=why,
            difference=None if log_e is None else self.sign * (group.mean - self.baseline.mean),
            log_e=log_e,
            log_bar=float(self.rule.log_bar(number, self.keeps)),
        )

    def _pooled(self) -> tuple[float, int]:
        """Variance within all groups, and its degrees of freedom."""
        growing = [self.baseline, *([] if self._open is None else [self._open])]
        df = self._past_df + sum(max(len(group.values) - 1, 0) for group in growing)
        return (self._past_squares + sum(group.squares for group in growing)) / max(df, 1), df

    @property
    def noise_sd(self) -> float | None:
        """Standard deviation of one run within its variant; None before two runs."""
        variance, df = self._pooled()
        return math.sqrt(variance) if df else None

    @property
    def progress(self) -> tuple[Mapping[str, Any], ...]:
        """Every baseline with the number of its runs, and their mean where it has one, from the first on."""
        return tuple(
            {
                "variant": group.variant,
                "runs": len(group.values),
                "mean": self.sign * group.mean if group.values else None,
            }
            for group in self.baselines
        )
