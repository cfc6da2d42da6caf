"""A study at one moment: every run's state and newest numbers, and the ranking that they allow."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from addnorm.statistics import Ranking
from addnorm.statistics.tuning import TuningOutcome
from addnorm.store import RunStatus
from addnorm.words import Sentence


@dataclass(frozen=True, kw_only=True)
class RunView(RunStatus):
    """One run as a page shows it: its status, and its times and speed."""

    newest_time: float | None
    """Of the newest event, in seconds since 1970."""
    tokens_per_s: float | None
    """Of the newest training event."""
    steps_per_s: float | None
    tokens_per_step: int | None
    """None for a plan that was not made by `addnorm run`."""
    began_time: float | None
    """When the first attempt began."""
    ended_time: float | None
    """When the run's ending was written."""
    peak_bytes: int | None
    """Largest resident memory of the attempt that finished."""

    @property
    def left_s(self) -> float | None:
        """Seconds to the run's end at its present speed; None unless it is running and that is known."""
        if self.state != "running" or not self.steps_per_s:
            return None
        return (self.steps - self.step) / self.steps_per_s


Facts = tuple[int, int]
"""Size and modification time of a file, which change when it is written again."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that pages are made from. Reading an unchanged folder twice gives the same snapshot."""

    path: Path
    plan: Mapping[str, Any]
    """Content of `study.json`."""
    runs: tuple[RunView, ...]
    """The compared runs, in plan order."""
    tuning_runs: tuple[RunView, ...]
    """The runs on which the variants are tuned before, in plan order."""
    tuning: TuningOutcome | None
    """Choice of the points at which variants are compared; None for a study without `tune`."""
    ranking: Ranking | None
    """None if there is nothing to rank; `no_ranking` gives the reason."""
    no_ranking: Sentence | None
    train_tokens: int | None
    """Tokens of the training text; None if the study's data are not in its folder."""
    kept: Mapping[str, Facts]
    """Facts of the files that sections are made from, by path within the folder."""

    @property
    def study(self) -> str:
        """The study's name."""
        return str(self.plan["study"])

    @property
    def all_runs(self) -> tuple[RunView, ...]:
        """Every run in plan order, those of tuning included."""
        return (*self.tuning_runs, *self.runs)

    @property
    def newest_time(self) -> float | None:
        """When the newest event of all runs was written."""
        return max((run.newest_time for run in self.all_runs if run.newest_time is not None), default=None)

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Every variant, in the study's order."""
        named = [name for name in self.plan.get("variants", ()) if isinstance(name, str)]
        found = dict.fromkeys(run.variant for run in self.runs)
        return tuple(dict.fromkeys([*(name for name in named if name in found), *found]))

    @property
    def titles(self) -> Mapping[str, str]:
        """Titles of the variants that have one."""
        titles = self.plan.get("titles")
        return titles if isinstance(titles, dict) else {}

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The variants that all others are compared with."""
        if self.ranking is not None:
            return self.ranking.references
        return tuple(name for name in self.plan.get("references", ()) if name in self.variants)

    @cached_property
    def _by_variant(self) -> dict[str, tuple[RunView, ...]]:
        found: dict[str, list[RunView]] = {name: [] for name in self.variants}
        for run in self.runs:
            found[run.variant].append(run)
        return {name: tuple(sorted(runs, key=lambda run: run.seed)) for name, runs in found.items()}

    def of(self, variant: str) -> tuple[RunView, ...]:
        """The variant's runs, by seed; none for a variant that the study does not have."""
        return self._by_variant.get(variant, ())

    def spec(self, variant: str) -> Mapping[str, Any]:
        """Spec of the variant's first run; empty if the plan holds none."""
        spec = self._specs.get(variant)
        return spec if isinstance(spec, dict) else {}

    @cached_property
    def _specs(self) -> dict[str, Any]:
        entries = [*self.plan["runs"], *(r for extension in self.plan.get("extensions", []) for r in extension["runs"])]
        return {entry["variant"]: entry.get("spec") for entry in reversed(entries)}
