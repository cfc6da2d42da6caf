"""Final losses of runs that other code trained: a CSV file, JSON lines, a data frame, a folder of TensorBoard events.

A row is a run. Columns `variant`, `seed` and `loss` are read, under other names if told so, and columns of states and steps if
there are any; all other columns are ignored. With steps, a run may have several rows: its loss is that of its last step. A loss
`nan` or `inf` stands for a run that diverged. In a folder of events, the path of an event file below it names the run:
`deep/seed-0` and `deep-s0` are variant `deep` at seed 0.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from addnorm.errors import InputError
from addnorm.statistics.result import Result
from addnorm.statistics.run_tables.columns import COSTS, Names, RunRow, columns_from
from addnorm.statistics.run_tables.doubts import doubts
from addnorm.statistics.run_tables.endings import NOT_ENDED, Run, last_of, results_of, tells_states
from addnorm.statistics.run_tables.event_folder import holds_events, read_folder
from addnorm.statistics.run_tables.files import SUFFIXES, form_of, holds_list
from addnorm.statistics.run_tables.logs import holds_logs
from addnorm.statistics.run_tables.numerals import NotANumber, Notation, is_missing, number, stripped, visible, whole
from addnorm.statistics.run_tables.offline_runs import offline_files
from addnorm.statistics.run_tables.records import PARQUET, Source, is_in_memory, read_records
from addnorm.statistics.run_tables.run_files import run_files
from addnorm.statistics.run_tables.trackers import is_database, read_any
from addnorm.statistics.table import counted_once
from addnorm.words import Sentence, listed, say

__all__ = [
    "Run",
    "RunTable",
    "SizedRuns",
    "Source",
    "columns_from",
    "is_run_table",
    "read_curves",
    "read_run_table",
    "read_runs",
    "read_sized_runs",
]

_SHOWN = 6
"""Words that a warning names."""
_AMOUNTS = ("step", "compute", "throughput")
_SEED = re.compile(r"^\s*s(?:eed)?[\s_=:-]*(?=\d+\s*$)", re.IGNORECASE)
"""Text before the number in `seed0`, `seed=0` and `s0`."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """The runs of a table."""

    runs: tuple[Result, ...]
    metric: str
    """Column or tag that holds the loss."""
    warnings: tuple[Sentence, ...]
    """Notes on runs that ended early or were resumed."""


def is_run_table(source: Source) -> bool:
    """True for a data frame, for rows, and for a path of the form of a table of runs, whether or not it can be read.

    Raises:
        InputError: neither a path nor a table, or a file of another form.
    """
    if is_in_memory(source):
        return True
    path = Path(source)  # type: ignore[arg-type]
    if path.is_dir():
        return not (path / "study.json").exists() and (
            holds_events(path) or bool(offline_files(path)) or holds_logs(path) or bool(run_files(path))
        )
    form = form_of(path)
    if form in (*SUFFIXES, PARQUET) or is_database(path):
        return True
    if path.is_file() and form != ".json":
        raise InputError(
            f"{path}: expected a table of runs (.csv, .tsv, .jsonl, .json, .parquet, .db) or a folder, got a file of another "
            f"form. {'Give the folder of its runs.' if form in ('.yaml', '.yml', '.py') else 'Save the table as CSV.'}"
        )
    return path.is_file() and holds_list(path)


def read_runs(source: Source, columns: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Read the runs of a table; see `read_run_table`."""
    return read_run_table(source, columns).runs


def read_run_table(source: Source, columns: Mapping[str, str] | None = None, *, fewest_seeds: int = 2) -> RunTable:
    """Read the runs of a table, and what is to be known about them.

    Args:
        source: `.csv`, `.tsv`, `.jsonl` or `.ndjson` file, `.json` file with a list of objects, each also with `.gz`; Parquet
            file; folder of TensorBoard events; data frame of pandas or polars; or a list of rows as mappings.
        columns: names of the columns, or of the tag for the loss, that differ from `variant`, `seed` and `loss`; names of the
            columns `state` and `step`, empty to leave them out; an empty `seed` numbers runs that have none; `ended`: `all` if
            runs without a state have ended, whatever their last step; for a folder, `run` is the form of the runs' names.
        fewest_seeds: 2, or 1 where runs of a table are added to others.

    Raises:
        InputError: no such file, a missing column, a row that does not fit the header, a seed or loss that is not a number, two
            runs of one variant and seed, or one seed alone.
    """
    names = Names.of(columns)
    notes: list[Sentence] = []
    metric, state_column = names.loss, names.state
    where = _place(source)
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and path.is_dir() and holds_events(path):
        runs, metric, notes = read_folder(path, names)
    else:
        rows, separator, notes = _rows(source, names)
        runs = _runs(rows, separator, names)
    if not runs:
        raise InputError(f"{where}: expected a row for each run, got none.")
    results, early = results_of(runs, metric, state_column, all_ended=names.all_ended)
    seeds = {run.seed for run in runs}
    if len(seeds) < fewest_seeds:
        raise InputError(
            f"{where}: expected at least two seeds, got seed {runs[0].seed} alone. Differences between single runs cannot be "
            "told from noise: run each variant at three seeds or more."
        )
    return RunTable(runs=tuple(results), metric=metric, warnings=(*notes, *early))


@dataclass(frozen=True, kw_only=True)
class SizedRuns:
    """The runs of one size of the models."""

    size: str
    """As its column says, or the compute."""
    runs: tuple[Run, ...]
    """At their last step; a run that has not finished is left out, one that diverged has no finite loss."""


def read_sized_runs(
    source: Source, columns: Mapping[str, str] | None = None
) -> tuple[tuple[SizedRuns, ...], str, tuple[Sentence, ...]]:
    """Runs by the size of their models, with what each cost; the column of the loss; and notes on runs that have not ended.

    Sizes are those of the column `size`; without it, runs of equal compute are of one size. The order is that of the compute.

    Raises:
        InputError: as `read_run_table`; a folder; or a run that lacks its size or compute while others have one.
    """
    names = Names.of(columns, further=COSTS)
    if isinstance(source, str | Path) and holds_events(Path(source)):
        raise InputError(
            f"{source}: expected a table with a row for each run, got a folder of events. Write its runs as a CSV file."
        )
    rows, separator, unread = _rows(source, names)
    _require_sizes(rows)
    by_size: dict[str, list[RunRow]] = {}
    for row in rows:
        of = row.size if row.size is not None else row.compute
        if is_missing(of) and any(not is_missing(each.size) or not is_missing(each.compute) for each in rows):
            raise InputError(
                f"{row.where}: expected the size or the compute of the run as in other rows, got an empty cell."
            )
        by_size.setdefault(stripped(str(of)) if of is not None else "", []).append(row)
    made, notes = [], list(unread)
    for size, of_size in by_size.items():
        runs = _runs(of_size, separator, names)
        results, early = results_of(runs, names.loss, names.state, all_ended=names.all_ended)
        notes += early
        counted, copied = counted_once([result for result in results if result.state == "finished"])
        notes += copied
        once = frozenset(counted)
        kept = [
            replace(run, loss=result.loss if result.state == "finished" else math.inf)
            for run, result in zip(runs, results, strict=True)
            if result.state == "diverged" or result in once
        ]
        left_out = [result for result in results if result.state not in ("finished", "diverged")]
        notes += [say("run_left_out", run=result.name, reason=result.reason or result.state) for result in left_out]
        if kept:
            made.append(SizedRuns(size=size, runs=tuple(kept)))
    if not made:
        raise InputError(f"{_place(source)}: expected a row for each run, got none that finished.")
    made.sort(key=lambda each: min(run.compute or 0.0 for run in each.runs))
    return tuple(made), names.loss, tuple(notes)


def read_curves(
    source: Source, columns: Mapping[str, str] | None = None
) -> tuple[dict[str, dict[int, dict[float, float]]], str, tuple[Sentence, ...]]:
    """Loss by variant, seed and step; the column of the loss; and notes on runs that have not ended.

    Raises:
        InputError: as `read_run_table`, a folder, or a table without steps.
    """
    names = Names.of(columns)
    if isinstance(source, str | Path) and Path(source).is_dir():
        raise InputError(
            f"{source}: expected a table with a row for each run and step, got a folder. Write it as a CSV file."
        )
    rows, separator, unread = _rows(source, names)
    notations = _notations(rows, separator)
    curves: dict[str, dict[int, dict[float, float]]] = {}
    ended = {}
    for row in rows:
        run = _run(row, names, notations)
        if run.step is None:
            raise InputError(
                f"{row.where}: expected the step of the row, got none. Name the column of steps with --columns step=NAME."
            )
        if run.loss is None:
            continue
        curve = curves.setdefault(run.variant, {}).setdefault(run.seed, {})
        if run.step in curve:
            raise InputError(
                f"{row.where}: expected one loss of variant {run.variant!r} at seed {run.seed} and step {run.step:.10g}, got a "
                "second one. Keep the row of the run that ended."
            )
        curve[run.step] = run.loss
        ended[run.variant, run.seed] = run
    if not curves:
        raise InputError(f"{_place(source)}: expected a row for each run and step, got none with a loss.")
    # A curve is compared as far as it goes, so that no step has to be asked about.
    _, notes = results_of(list(ended.values()), names.loss, names.state, all_ended=True)
    return curves, names.loss, (*unread, *notes)


def _require_sizes(rows: Sequence[RunRow]) -> None:
    """Refuse rows of one variant and seed that may be one run at several steps, or runs of several sizes."""
    first: dict[tuple[str, str], RunRow] = {}
    for row in rows:
        other = first.setdefault((str(row.variant), str(row.seed)), row)
        if row.size is None and row.seed is not None and row.step != other.step and row.compute != other.compute:
            raise InputError(
                f"{row.where}: expected to know whether this is another run than {other.where} or the same at a later step, "
                "got another step and another compute. Name the column of sizes with --columns size=NAME, or leave the "
                "steps out with --columns step=."
            )


def _place(source: Source) -> str:
    return "table of runs" if is_in_memory(source) else str(source)


def _rows(source: Source, names: Names) -> tuple[list[RunRow], str | None, list[Sentence]]:
    rows, separator = (
        (read_records(source, names), None)  # type: ignore[arg-type]
        if is_in_memory(source)
        else read_any(Path(source), names)  # type: ignore[arg-type]
    )
    notes = doubts(rows, names)
    if not tells_states(words := [row.state for row in rows]) and not names.state:
        rows = [row if row.state is None else replace(row, state=None) for row in rows]
        unknown = list(dict.fromkeys(str(word) for word in words if not is_missing(word)))
        # Fractions are a number of a column of that name, such as the loss `valid`.
        if len(unknown) + any(map(is_missing, words)) > 1 and not all(
            re.fullmatch(r"-?\d*\.\d+", word) for word in unknown
        ):
            notes.append(say("states_unknown", words=listed("comma", unknown[:_SHOWN])))
    if rows and rows[0].held_out is not None:
        notes.append(say("held_out_unread", column=rows[0].held_out, loss=names.loss))
    return rows, separator, notes


def _runs(rows: Sequence[RunRow], separator: str | None, names: Names) -> list[Run]:
    """The runs of rows; of a run with several steps, the last one that has a loss."""
    notations = _notations(rows, separator)
    by_cell: dict[tuple[str, int], list[Run]] = {}
    unnumbered = not (names.seed or names.tells_seed)
    for place, row in enumerate(rows):
        run = _run(replace(row, seed=place) if unnumbered and row.seed is None else row, names, notations)
        by_cell.setdefault((run.variant, run.seed), []).append(run)
    return [last_of(steps) for steps in by_cell.values()]


def _notations(rows: Sequence[RunRow], separator: str | None) -> dict[str, Notation]:
    """The notation of losses, and those of steps and costs."""
    of_losses = Notation.of((row.loss for row in rows if isinstance(row.loss, str)), separator)
    notations = {"loss": of_losses}
    for name in _AMOUNTS:
        cells = (cell for row in rows if isinstance(cell := getattr(row, name), str) and not cell.isdigit())
        notations[name] = Notation.beside(cells, of_losses)
        _require_one_reading(rows, name, notations[name])
    return notations


def _require_one_reading(rows: Sequence[RunRow], name: str, notation: Notation) -> None:
    """Refuse `1.000` beside `500`, which may be a thousand beside five hundred, or one."""
    cells = {
        cell: row for row in reversed(rows) if isinstance(cell := getattr(row, name), str) and not is_missing(cell)
    }
    grouped = [cell for cell in cells if re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+", cell)]
    whole = [cell for cell in cells if re.fullmatch(r"\d{3}", cell)]
    if notation.decimal == "." and grouped and whole and len(grouped) + sum(map(str.isdigit, cells)) == len(cells):
        raise InputError(
            f"{cells[grouped[0]].where}: expected a number in column {name!r}, got {grouped[0]!r} beside {whole[0]!r}. A point "
            "may be a decimal mark or separate thousands: write 1000 or 1.0."
        )


def _run(row: RunRow, names: Names, notations: Mapping[str, Notation]) -> Run:
    variant = _variant(row.variant, names.variant, row.where)
    if names.run is not None and row.seed is None:
        parts = names.parts_of(variant, row.where)
        variant, row = parts.get("variant", variant), replace(row, seed=parts.get("seed"))
    try:
        seed = whole(_SEED.sub("", row.seed) if isinstance(row.seed, str) else row.seed)
    except NotANumber:
        raise _no_seed(row, names) from None
    loss = None
    if not is_missing(row.loss):
        loss = _number(row.loss, names.loss, row.where, notations["loss"])
    step, compute, throughput = (
        None if is_missing(cell) else _number(notations[name].ungrouped(cell), name, row.where, notations[name])
        for name, cell in zip(_AMOUNTS, (row.step, row.compute, row.throughput), strict=True)
    )
    # A step of nan or inf, or of -1 as some programs write for the end, would be sorted somewhere among the others.
    for name, value, least in (("step", step, 0.0), ("compute", compute, 5e-324), ("throughput", throughput, 5e-324)):
        if value is not None and not (math.isfinite(value) and value >= least):
            kind = "positive number" if least else "step, a number from 0"
            raise InputError(f"{row.where}: expected a {kind} in column {name!r}, got {value}. Correct the row.")
    return Run(
        where=row.where,
        variant=variant,
        seed=seed,
        loss=loss,
        written=row.loss,
        state=None if row.state is None else str(row.state),
        step=step,
        compute=compute,
        throughput=throughput,
    )


def _variant(name: object, column: str, where: str) -> str:
    if not isinstance(name, str | int | float) or not visible(str(name)):
        got = _shortened(name)
        raise InputError(
            f"{where}: expected a name in column {column!r}, got {got}. Remove a row that is no run; "
            "where cells were merged, write the name in every row."
        )
    return visible(str(name))


def _no_seed(row: RunRow, names: Names) -> InputError:
    kind = "whole number"
    if isinstance(row.seed, str) and not any(character.isdigit() for character in row.seed):
        kind = "number"
    advice = (
        "Remove a row that is no run, such as a mean; if the runs have no seeds, give --columns seed= to number them."
    )
    return InputError(f"{row.where}: expected a {kind} in column {names.seed!r}, got {row.seed!r}. {advice}")


def _number(text: object, column: str, where: str, notation: Notation) -> float:
    try:
        return number(text, notation)
    except NotANumber as error:
        raise InputError(
            f"{where}: expected a number in column {column!r}, got {_shortened(text)}. {str(error) or NOT_ENDED}"
        ) from None


def _shortened(text: object) -> str:
    return repr(text) if len(repr(text)) <= 60 else f"{repr(text)[:60]}…"
