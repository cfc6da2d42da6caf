"""Runs from wherever they are: a study's folder, printed results, or a table that other code wrote."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from addnorm.errors import InputError
from addnorm.references import names_printed_results
from addnorm.statistics import Result, kuang_2025, read_published
from addnorm.statistics.measure import LOSS, Direction, Metric, measure_of
from addnorm.statistics.run_tables import Run, SizedRuns, Source, is_run_table, read_run_table, read_sized_runs
from addnorm.statistics.run_tables import read_curves as table_curves
from addnorm.store.results import measure_of_study, results
from addnorm.store.study import StudyFolder
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
) -> Runs:
    """Read the runs of a source.

    Args:
        source: folder of a study; a JSON file of published results; `kuang-2025`; or a table of runs.
        columns: names of the columns of a table.
        direction: the better direction of a table's column `loss`.
        unit: of that column.
        fewest_seeds: that a table has to have.

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
    if names_printed_results(path) or path.suffix == ".json":
        published = kuang_2025() if names_printed_results(path) else read_published(path)
        return Runs(name=str(path), results=published.results, references=published.references)
    folder = StudyFolder(path)
    return Runs(
        name=str(path), results=tuple(results(folder)), references=folder.references, measure=measure_of_study(folder)
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
) -> SizedSource:
    """Read the runs of a table, or the finished ones of any other source as runs of one size.

    Raises:
        InputError: as `read_source`, or a run without its size or compute.
    """
    if is_run_table(source) and not (isinstance(source, str | Path) and Path(source).is_dir()):
        sizes, metric, notes = read_sized_runs(source, columns)
        measure = measure_of(metric, direction, unit)
        assumed = (sentence("direction_assumed", metric=measure.name),) if measure.assumed else ()
        name = str(source) if isinstance(source, str | Path) else "table"
        return SizedSource(name=name, sizes=sizes, measure=measure, warnings=(*notes, *assumed))
    runs = read_source(source, columns, direction, unit, fewest_seeds=1)
    ended = [result for result in runs.results if result.state in ("finished", "diverged")]
    made = [
        Run(where=each.name, variant=each.variant, seed=each.seed, loss=math.inf if each.loss is None else each.loss)
        for each in ended
    ]
    left_out = [
        sentence("run_left_out", run=each.name, reason=each.reason or each.state)
        for each in runs.results
        if each not in ended
    ]
    return SizedSource(
        name=runs.name,
        sizes=(SizedRuns(size="", runs=tuple(made)),),
        measure=runs.measure,
        warnings=(*left_out, *runs.warnings),
    )


def read_curves(
    source: Source, columns: Mapping[str, str] | None = None, unit: str | None = None
) -> tuple[dict[str, dict[int, dict[float, float]]], Metric, tuple[Sentence, ...]]:
    """Loss by variant, seed and step, of a table with a row per run and step.

    Raises:
        InputError: not a table, or one without steps.
    """
    if not is_run_table(source):
        raise InputError(f"{source}: expected a table with a row for each run and step, such as a CSV file.")
    curves, column, notes = table_curves(source, columns)
    return curves, measure_of(column, "lower", unit), notes


def columns_of_no_table(path: Path, given: str = "columns are given") -> InputError:
    """The error for columns, or what they hold, that are named for results of addnorm's own form."""
    if path.is_dir() and not (path / "study.json").exists():
        return InputError(
            f"{path}: expected a table of runs where {given}, got a folder without TensorBoard events, runs of W&B or SwanLab, "
            "or logs of modded-nanogpt, nanoGPT or nanochat. Write the runs as one table, such as a CSV file."
        )
    return InputError(
        f"{path}: expected a table of runs where {given}, got addnorm's own results. Leave the columns out."
    )
