"""Runs from wherever they are: a study's folder, printed results, or a table that other code wrote."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from addnorm.errors import InputError, JobError, UnknownName, warn
from addnorm.references import names_printed_results
from addnorm.statistics import Result, kuang_2025, read_published
from addnorm.statistics.measure import LOSS, Direction, Metric, measure_of
from addnorm.statistics.run_tables import Run, SizedRuns, Source, is_run_table, read_run_table, read_sized_runs
from addnorm.statistics.run_tables import read_curves as table_curves
from addnorm.statistics.table import counted_once
from addnorm.store.events import Event, read_events
from addnorm.store.files import Damaged, read_json
from addnorm.store.index import on_curve_text
from addnorm.store.results import measure_of_study, results
from addnorm.store.run import RunFolder
from addnorm.store.study import COSTS, Batch, StudyFolder
from addnorm.words import Sentence
from addnorm.words import say as sentence


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs with what their source says about them."""

    name: str
    """Path, or `table` of a table in memory."""
    results: tuple[Result, ...]
    references: tuple[str, ...]
    """Those of the study; of a table, its first variant."""
    measure: Metric = LOSS
    warnings: tuple[Sentence, ...] = field(default=())


def read_source(
    source: Source,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
    *,
    fewest_seeds: int = 2,
    batch: Batch | None = None,
) -> Runs:
    """Read the runs of a source.

    Args:
        source: folder of a study; a JSON file of published results; `kuang-2025`; or a table of runs.
        columns: names of the columns of a table.
        direction: the better direction of a table's column `loss`.
        unit: of that column.
        fewest_seeds: that a table has to have.
        batch: first or second batch of a study's seeds alone; a source that is no study has one batch.

    Raises:
        InputError: the source is something else, or columns are given for a source that is not a table.
        Damaged: a file of the study is damaged.
    """
    if is_run_table(source):
        table = read_run_table(source, columns, fewest_seeds=fewest_seeds)
        measure = measure_of(table.metric, direction, unit)
        assumed = (sentence("direction_assumed", metric=measure.name),) if measure.assumed else ()
        return Runs(
            name=str(source) if isinstance(source, str | Path) else "table",
            results=table.runs,
            references=(table.runs[0].variant,),
            measure=measure,
            warnings=(*table.warnings, *assumed),
        )
    path = Path(source)  # type: ignore[arg-type]
    if columns or direction or unit:
        raise columns_of_no_table(path, "columns are given" if columns else "a direction or unit is given")
    if is_published(path):
        published = kuang_2025() if names_printed_results(path) else read_published(path)
        return Runs(name=str(path), results=published.results, references=published.references)
    folder = StudyFolder(path)
    return Runs(
        name=str(path),
        results=tuple(results(folder, batch=batch)),
        references=folder.references,
        measure=measure_of_study(folder),
    )


@dataclass(frozen=True, kw_only=True)
class SizedSource:
    """Runs of one size of the models or of several, with what each cost."""

    name: str
    sizes: tuple[SizedRuns, ...]
    measure: Metric
    warnings: tuple[Sentence, ...]

    @property
    def variants(self) -> tuple[str, ...]:
        """Every variant once, in order of first appearance."""
        return tuple(dict.fromkeys(run.variant for size in self.sizes for run in size.runs))


def read_sizes(
    source: Source,
    columns: Mapping[str, str] | None = None,
    direction: Direction | None = None,
    unit: str | None = None,
    *,
    further: Sequence[str | Path] = (),
    time: bool = False,
    batch: Batch = "first",
) -> SizedSource:
    """Read the runs of a table, or the finished ones of any other source as runs of one size.

    Args:
        source, columns, direction, unit: as for `read_source`.
        further: folders of studies with other sizes, where the source is one. Their runs cost their counted FLOPs.
        time: the seconds of training that were measured instead.
        batch: of a study's seeds.

    Raises:
        InputError: as `read_source`, or a run without its size or compute.
    """
    if is_run_table(source) and not (isinstance(source, str | Path) and Path(source).is_dir()):
        if further or time:
            raise InputError(
                "size, time: expected folders of studies, got a table. Write sizes and costs into its columns."
            )
        sizes, metric, notes = read_sized_runs(source, columns)
        measure = measure_of(metric, direction, unit)
        assumed = (sentence("direction_assumed", metric=measure.name),) if measure.assumed else ()
        name = str(source) if isinstance(source, str | Path) else "table"
        return SizedSource(name=name, sizes=sizes, measure=measure, warnings=(*notes, *assumed))
    read = [read_source(each, columns, direction, unit, fewest_seeds=1, batch=batch) for each in (source, *further)]
    made, left_out = [], []
    for runs in read:
        costs = _costs_of_runs(StudyFolder(runs.name), time=time) if is_study(runs.name) else {}
        ended = [result for result in runs.results if result.state in ("finished", "diverged")]
        counted, copied = counted_once([result for result in ended if result.state == "finished"])
        left_out += copied
        once = frozenset(counted)
        rows = tuple(
            Run(
                where=each.name,
                variant=each.variant,
                seed=each.seed,
                loss=math.inf if each.loss is None else each.loss,
                compute=costs.get(each.name),
            )
            for each in ended
            if each.state == "diverged" or each in once
        )
        made.append(SizedRuns(size=runs.name if further else "", runs=rows))
        left_out += [
            sentence("run_left_out", run=each.name, reason=each.reason or each.state)
            for each in runs.results
            if each not in ended
        ]
    made.sort(key=lambda each: min((run.compute or 0.0 for run in each.runs), default=0.0))
    return SizedSource(
        name=read[0].name,
        sizes=tuple(made),
        measure=read[0].measure,
        warnings=tuple(dict.fromkeys((*left_out, *(warning for runs in read for warning in runs.warnings)))),
    )


Curves = dict[str, dict[int, dict[float, float]]]
"""Loss by variant, seed and step."""


def read_curves(
    source: Source, columns: Mapping[str, str] | None = None, unit: str | None = None, batch: Batch = "first"
) -> tuple[Curves, Metric, tuple[Sentence, ...]]:
    """Loss by variant, seed and step, of a table with a row per run and step or of finished runs of a batch of a study.

    Raises:
        InputError: a source of another form, or one without steps.
    """
    if is_run_table(source):
        curves, column, notes = table_curves(source, columns)
        return curves, measure_of(column, None, unit), notes
    path = Path(source)  # type: ignore[arg-type]
    if columns or unit:
        raise columns_of_no_table(path)
    folder = StudyFolder(path)
    curves, left_out = {}, []
    for run, result in zip(folder.runs(batch), results(folder, batch=batch), strict=True):
        if result.state not in ("finished", "diverged"):
            left_out.append(sentence("run_left_out", run=result.name, reason=result.reason or result.state))
            continue
        # An evaluation that a later attempt repeated has the same values; those of the last step may be of more text.
        events = read_events(run.events_path, types=("eval",))[0]
        curve = {float(event["step"]): _curve_loss(event, run) for event in events}
        if result.state == "diverged":  # an answer about its variant would be one about the runs that survived
            curve[float(run.spec["steps"])] = math.inf
        curves.setdefault(result.variant, {})[result.seed] = {step: x for step, x in curve.items() if x is not None}
    if not curves:
        raise InputError(f"{path}: expected a finished run, got none. Train the study first.")
    return curves, measure_of_study(folder), tuple(left_out)


def _curve_loss(event: Event, run: RunFolder) -> float | None:
    """Loss on the text of all evaluations; None where the last one is of other text."""
    text, training = event.get("text"), _training(run)
    is_other = isinstance(text, Mapping) and "curve_loss" not in text
    if is_other and training.get("final_sequences") not in (None, training.get("eval_sequences")):
        return None
    return float(on_curve_text(event)["loss"])


def _training(run: RunFolder) -> Mapping[str, object]:
    spec = run.spec.get("spec")
    training = spec.get("training") if isinstance(spec, Mapping) else None
    return training if isinstance(training, Mapping) else {}


def counted_costs(folder: StudyFolder) -> Mapping[str, Any]:
    """Counts that `addnorm run` wrote of every variant; empty if it has not.

    Raises:
        Damaged: the file of counts cannot be read.
    """
    path = folder.path / COSTS
    counted = read_json(path) if path.exists() else {}
    costs = counted.get("variants", {}) if isinstance(counted, Mapping) else None
    if not isinstance(costs, Mapping):
        raise Damaged(f"{path} is damaged: expected numbers by variant. Remove it and run the study again.")
    return costs


def run_flops(folder: StudyFolder) -> dict[str, float]:
    """Training FLOPs of a run, by variant, as `addnorm plan` counts them.

    Raises:
        InputError: a variant whose FLOPs nobody counted.
        Damaged: the file of counts cannot be read.
    """
    costs = _costs_of_runs(folder, time=False)
    for run in folder.runs():
        if run.name not in costs:
            raise InputError(
                f"{folder.path}: expected the FLOPs of variant {run.spec['variant']!r}, got none in {COSTS}. They are counted "
                "when `addnorm run` starts a study."
            )
    return _by_variant(folder, costs, per_step=False)


def relative_costs(folder: StudyFolder, reference: str) -> dict[str, dict[str, float]]:
    """FLOPs (`compute`) and seconds (`time`) of a step of every variant over those of the reference, as far as known."""
    made: dict[str, dict[str, float]] = {}
    for name in ("compute", "time"):
        costs = _by_variant(folder, _costs_of_runs(folder, time=name == "time"), per_step=True)
        for variant, cost in costs.items() if reference in costs else ():
            made.setdefault(variant, {})[name] = cost / costs[reference]
    return made


def _by_variant(folder: StudyFolder, costs: Mapping[str, float], *, per_step: bool) -> dict[str, float]:
    """Mean cost of a variant's runs of the first batch, or of a step of theirs: the machine may be slower during the second."""
    of: dict[str, list[float]] = {}
    for run in folder.runs("first"):
        if run.name in costs:
            of.setdefault(run.spec["variant"], []).append(costs[run.name] / (run.spec["steps"] if per_step else 1))
    return {variant: fmean(each) for variant, each in of.items()}


def _costs_of_runs(folder: StudyFolder, *, time: bool) -> dict[str, float]:
    """FLOPs of every run, or the seconds that its training took; without those that nobody knows."""
    counted, costs = {} if time else counted_costs(folder), {}
    for run in folder.runs():
        batch, seq = _training(run).get("batch"), _training(run).get("seq")
        per_token: Any
        if time:
            speed = median_speed(run)
            per_token = 1 / speed if speed else 0.0
        else:
            per_token = (counted.get(run.spec["variant"]) or {}).get("flops_per_token")
        if per_token and run.spec["steps"] and isinstance(batch, int) and isinstance(seq, int):
            costs[run.name] = float(run.spec["steps"] * batch * seq * per_token)
    return costs


def median_speed(run: RunFolder) -> float:
    """Tokens per second of training; the median over events, which neither a pause nor another program's minute moves.

    0 without an event.

    Raises:
        Damaged: the events are damaged.
    """
    events = read_events(run.events_path, types=("train",))[0]
    return median(float(event.get("tokens_per_s", 0)) for event in events) if events else 0.0


def is_published(path: Path) -> bool:
    """True for printed results: `kuang-2025`, or a JSON file of them."""
    return names_printed_results(path) or path.suffix == ".json"


def columns_of_no_table(path: Path, given: str = "columns are given") -> InputError:
    """The error for columns, or what they hold, that are named for results of addnorm's own form."""
    if path.is_dir() and not (path / "study.json").exists():
        return InputError(
            f"{path}: expected a table of runs where {given}, got a folder without TensorBoard events, runs of W&B, SwanLab "
            "or MLflow, trainer_state.json, logs of modded-nanogpt, nanoGPT or nanochat, or tables (.csv, .jsonl). Write "
            "the runs as one table, such as a CSV file."
        )
    return InputError(
        f"{path}: expected a table of runs where {given}, got addnorm's own results. Leave the columns out."
    )


def compared_variants(
    known: Sequence[str], reference: str | None, variants: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """The reference, the first variant unless given, and those that are compared with it, all others unless given.

    Raises:
        UnknownName: there is no such variant.
    """
    for name in (*variants, *([] if reference is None else [reference])):
        if name not in known:
            raise UnknownName("variant", name, known)
    base = reference or known[0]
    return base, tuple(name for name in (variants or known) if name != base)


def own_reference(source: Source) -> str | None:
    """The first reference of a study; None of a table."""
    return StudyFolder(str(source)).references[0] if is_study(source) else None


def is_study(source: Source) -> bool:
    """True for a study's folder."""
    return isinstance(source, str | Path) and (Path(source) / "study.json").exists()


def record_peek(folder: StudyFolder, say: Callable[[str], None] = warn) -> None:
    """Record that results were shown; a folder that cannot be written is reported and may be shown all the same."""
    try:
        folder.record_peek()
    except JobError as error:
        say(f"this look is not recorded, so seeds added later will not be marked as added after it: {error}")
