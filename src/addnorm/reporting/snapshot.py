"""A study at one moment: every run's state and newest numbers, and the ranking that they allow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol, runtime_checkable

from addnorm.reporting.formats.names import WIDE, short_names
from addnorm.reporting.formats.spec import differing
from addnorm.statistics import Ranking, VariantRank
from addnorm.statistics.measure import LOSS, Metric, perplexity
from addnorm.statistics.tuning import TuningOutcome
from addnorm.store import Index, RunStatus, State
from addnorm.store.extension import all_runs, references_of, seeds_again
from addnorm.store.measured import MEASURED
from addnorm.words import Sentence

SourceKind = Literal["study", "checkpoints", "table"]
ORDER: tuple[State, ...] = ("finished", "running", "queued", "interrupted", "blocked", "diverged", "failed")
"""States of runs in the order in which pages list them."""
WORST_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "blocked", "interrupted", "queued", "finished")
"""The first state that any run of a model has is shown as the model's: running, or else the worst."""
_MOST_SETTINGS = 4
"""Settings that a variant's subtitle names."""


@dataclass(frozen=True, kw_only=True)
class ShownLoss:
    """A variant's loss beside those of the others."""

    loss: float
    shared: int | None
    """Number of seeds behind it where the variants have different ones: those that all have. 0 if there is none, so that it
    must not be compared; None where all variants have the same seeds."""
    accuracy: float | None
    perplexity: float | None
    """Both of the same seeds as the loss."""


@dataclass(frozen=True, kw_only=True)
class RunView(RunStatus):
    """One run as a page shows it: its status, and its times and speed."""

    newest_time: float | None = None
    """Of the newest event, in seconds since 1970."""
    tokens_per_s: float | None = None
    """Of the newest training event."""
    steps_per_s: float | None = None
    tokens_per_step: int | None = None
    """None for a plan that was not made by `addnorm run`."""
    began_time: float | None = None
    """When the first attempt began."""
    ended_time: float | None = None
    """When the run's ending was written."""
    peak_bytes: int | None = None
    """Largest resident memory of the attempt that finished."""
    host: str | None = None
    """Of the worker; None unless the run is running."""
    uses: Mapping[str, float] = field(default_factory=dict)
    """Use of processors, memory and GPU as the worker last recorded it (`addnorm.training.use`); empty if it has not."""

    @property
    def left_s(self) -> float | None:
        """Seconds to the run's end at its present speed; None unless it is running and that is known."""
        if self.state != "running" or not self.steps_per_s:
            return None
        return (self.steps - self.step) / self.steps_per_s

    @property
    def wall_s(self) -> float | None:
        """Seconds from the run's first event to its end, pauses included; None unless it has ended."""
        if self.began_time is None or self.ended_time is None:
            return None
        return max(0.0, self.ended_time - self.began_time)


@dataclass(frozen=True, kw_only=True)
class MeasuredFolder:
    """A folder that holds measures of a model: a run's, or that of a measured checkpoint."""

    name: str
    """Of the run or the checkpoint."""
    folder: str
    """Relative to the study's folder."""
    seed: int | None
    """None of a checkpoint."""


@runtime_checkable
class CurveSource(Protocol):
    """Values of the runs over training: those of a study's events, or of a table with steps. See `addnorm.store.Index`."""

    def thinned(self, run: str, metric: str, *, first: int, last: int, parts: int) -> list[tuple[int, float]]:
        """Means over at most `parts` bins between two steps."""
        ...

    def neighbours(self, run: str, metric: str, *, first: int, last: int) -> list[tuple[int, float]]:
        """The nearest values before and after."""
        ...


@dataclass(frozen=True, kw_only=True)
class TableSource:
    """A table of runs of other code, as it was read."""

    words: tuple[str | Path, ...]
    """Path and options with which `addnorm rank` and `addnorm report` read it; empty for a table in memory."""
    hash: str | None
    """SHA-256 of a file; None for a folder or a table in memory."""
    curves: CurveSource
    no_curves: str | None
    """Reason why there are no curves; None if there are."""
    measure: Metric
    posterior: bool
    """True if probabilities were asked for."""


Facts = tuple[int, int]
"""Size and modification time of a file, which change when it is written again."""


# Immutable on purpose, although it is large: a page, its live updates and a report are rendered from it by several
# threads while the reader makes the next one. Sections read further files themselves (`content_of`, the index of
# events); `kept` has the facts of those that may change, so that a change of one makes a new snapshot.
#
# `cached_property` on a frozen dataclass is meant: it writes to the instance's dict, past `__setattr__`. Two threads
# may compute the same value twice, which is harmless, since both get the same.
@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that pages are made from. Reading an unchanged folder twice gives the same snapshot."""

    path: Path
    plan: Mapping[str, Any]
    """Content of `study.json`."""
    runs: tuple[RunView, ...]
    """The compared runs, in plan order."""
    tuning_runs: tuple[RunView, ...] = ()
    """The runs on which the variants are tuned before, in plan order."""
    tuning: TuningOutcome | None = None
    """Choice of the points at which variants are compared; None for a study without `tune`."""
    ranking: Ranking | None = None
    """None if there is nothing to rank; `no_ranking` gives the reason."""
    no_ranking: Sentence | None = None
    train_tokens: int | None = None
    """Tokens of the training text; None if the study's data are not in its folder."""
    kept: Mapping[str, Facts] = field(default_factory=dict)
    """Facts of the files that sections are made from, by path within the folder."""
    checkpoints: tuple[str, ...] = ()
    """Names of the measured checkpoints, sorted."""
    source: SourceKind = "study"
    """Kind of the source: a folder of measured checkpoints alone and a table of runs have pages of their own."""
    table: TableSource | None = None
    """The table of runs; None for anything else."""
    fault: str | None = None
    """The fault in a table now, with line and cure: all else is its last good state."""

    @property
    def is_study(self) -> bool:
        return self.source == "study"

    @property
    def measure(self) -> Metric:
        """The compared measure: a loss in nats, or the column of a table."""
        if self.ranking is not None:
            return self.ranking.measure
        return LOSS if self.table is None else self.table.measure

    @property
    def curves(self) -> CurveSource:
        """Source of the values of the runs over training."""
        return Index(self.path) if self.table is None else self.table.curves

    @property
    def study(self) -> str:
        """The study's name."""
        return str(self.plan["study"])

    def tokens_of(self, runs: Iterable[RunView]) -> int | None:
        """Tokens that runs have been trained on, repeated steps not counted; None if their plan does not tell."""
        counts = [None if run.tokens_per_step is None else run.step * run.tokens_per_step for run in runs]
        return None if None in counts else sum(count for count in counts if count is not None)

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
        with_runs = dict.fromkeys(run.variant for run in self.runs)
        return tuple(dict.fromkeys([*(name for name in named if name in with_runs), *with_runs]))

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
        return tuple(name for name in references_of(self.plan) if name in self.variants)

    @cached_property
    def _by_variant(self) -> dict[str, tuple[RunView, ...]]:
        by_variant: dict[str, list[RunView]] = {name: [] for name in self.variants}
        for run in self.runs:
            by_variant[run.variant].append(run)
        return {name: tuple(sorted(runs, key=lambda run: run.seed)) for name, runs in by_variant.items()}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Every variant, in the study's order, and every measured checkpoint."""
        return (*self.variants, *self.checkpoints)

    def measured_in(self, model: str) -> tuple[MeasuredFolder, ...]:
        """Folders of the measures of a variant, by seed, or of a checkpoint."""
        if model in self.variants:
            return tuple(MeasuredFolder(name=run.run, folder=run.run, seed=run.seed) for run in self.of(model))
        if model not in self.checkpoints:
            return ()
        return (MeasuredFolder(name=model, folder=f"{MEASURED}/{model}", seed=None),)

    def of(self, variant: str) -> tuple[RunView, ...]:
        """The variant's runs, by seed; none for a variant that the study does not have."""
        return self._by_variant.get(variant, ())

    def first_batch(self, variant: str) -> tuple[RunView, ...]:
        """Those without the plan's `replicate`: only some variants have a second batch, so that means over both would compare
        different seeds."""
        second = seeds_again(self.plan)
        return tuple(run for run in self.of(variant) if run.seed not in second)

    @cached_property
    def by_result(self) -> tuple[str, ...]:
        """Every variant, best first; those without a rank after them, in the study's order."""
        ranked = [row.variant for row in self.ranking.variants] if self.ranking is not None else []
        return tuple(dict.fromkeys([*(name for name in ranked if name in self._by_variant), *self.variants]))

    @cached_property
    def short_names(self) -> Mapping[str, str]:
        """Every variant's name as it fits into charts on a phone: without what all names share."""
        return short_names(self.variants)

    @cached_property
    def wide_names(self) -> Mapping[str, str]:
        """The same for charts on a desktop, and for names that may wrap."""
        return short_names(self.variants, WIDE)

    @cached_property
    def _rank_by_variant(self) -> Mapping[str, VariantRank]:
        return {} if self.ranking is None else {row.variant: row for row in self.ranking.variants}

    def rank_of(self, variant: str) -> VariantRank | None:
        """The variant's row of the ranking; None without one."""
        return self._rank_by_variant.get(variant)

    @cached_property
    def losses(self) -> Mapping[str, ShownLoss]:
        """The loss of every variant with a counted run, over the same seeds for all."""
        # While a study runs, one variant has seeds that another has not reached. Seeds differ by more than variants do, so
        # that means over different seeds say which seeds are hard and nothing of the variants.
        if self.ranking is None:
            return {}
        by_seed = {
            row.variant: {value.seed: value for value in row.values if value.counted and value.loss is not None}
            for row in self.ranking.variants
            if not row.constant and row.mean is not None  # the value of an untrained model is that of every seed
        }
        seeds = [set(values) for values in by_seed.values()]
        common = set.intersection(*seeds) if seeds else set()
        is_even = self.ranking.unpaired or all(each == common for each in seeds)
        shown = {}
        for row in self.ranking.variants:
            own = by_seed.get(row.variant)
            if row.mean is not None and (is_even or own is None or not common):
                shared = None if is_even or own is None else 0
                shown[row.variant] = ShownLoss(
                    loss=row.mean, shared=shared, accuracy=row.accuracy, perplexity=row.perplexity
                )
            elif own:
                values = [own[seed] for seed in common]
                loss = fmean(value.loss for value in values if value.loss is not None)
                accuracies = [value.accuracy for value in values if value.accuracy is not None]
                accuracy = fmean(accuracies) if len(accuracies) == len(common) else None
                shown[row.variant] = ShownLoss(
                    loss=loss,
                    shared=len(common),
                    accuracy=accuracy,
                    perplexity=None if row.perplexity is None else perplexity(loss),
                )
        return shown

    @cached_property
    def differing(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of models and training that variants do not share: path, variant, value."""
        specs = {name: self.spec(name) for name in self.variants}
        parts = ("model", "training", "corpus", "tokenizer")
        # Compared as flat text, not as objects: a spec may come from another version of the library, with fields that
        # this one does not know, and pages have to show it all the same.
        return differing({name: {p: spec[p] for p in parts if p in spec} for name, spec in specs.items()})

    def subtitle(self, variant: str) -> str:
        """One line on what the variant is: its title, or the settings in which it differs from the first reference.

        For that reference: its own values of the settings that differ anywhere. Empty if all specs are equal.
        """
        if variant in self.titles:
            return self.titles[variant]
        base = next(iter(self.references or self.variants), variant)
        own = {path: of[variant] for path, of in self.differing.items() if variant == base or of[variant] != of[base]}
        hidden = ("model.content",)  # the hash of a checkpoint's weights
        set_here = {path: value for path, value in own.items() if value not in ("–", "null") and path not in hidden}
        # What a model is made of says more than the settings of a part.
        shown = sorted(set_here.items(), key=lambda item: not item[0].endswith(".kind"))[:_MOST_SETTINGS]
        return " · ".join(f"{_setting(path)} {value}" for path, value in shown) + (
            " · …" if len(set_here) > len(shown) else ""
        )

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Small tables that a section read from large files for several figures, by a key of its own."""
        return {}

    def spec(self, variant: str) -> Mapping[str, Any]:
        """Spec of the variant's first run; empty if the plan holds none."""
        spec = self._specs.get(variant)
        return spec if isinstance(spec, dict) else {}

    @cached_property
    def _specs(self) -> dict[str, Any]:
        # Reversed, so that a variant's first run wins: extensions repeat specs, and the first plan is the one that
        # was frozen.
        return {entry["variant"]: entry.get("spec") for entry in reversed(all_runs(self.plan))}


def _setting(path: str) -> str:
    """`scores` for `model.scores.kind`, `learning_rate` for `training.learning_rate`."""
    return path.partition(".")[2].removesuffix(".kind")
