"""Databases of MLflow and trackio, as rows with the names that their own exports use.

MLflow keeps runs in `runs` (with `status` and `lifecycle_stage`), settings in `params`, names in `tags`, and numbers in
`metrics` (`key`, `value`, `step`, `timestamp`, `is_nan`). A row has `run_id`, `status`, `step` and `metrics.NAME`,
`params.NAME`, `tags.NAME`, as `mlflow.search_runs` returns them; deleted runs are left out, as there. trackio keeps a JSON
object of numbers for each logged step in `metrics`, and one of settings for each run in `configs`. A row has `run_name`,
`step`, the numbers, and `config.NAME`.

What a resumed run repeats is replaced by what it wrote last.

Source: MLflow, `mlflow/store/tracking/dbmodels/models.py`; trackio, `docs/source/storage_schema.md`.
Differs from the source: nothing.
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.run_tables.columns import Names, RunRow
from addnorm.statistics.run_tables.files import form_of, read_rows, rows_of_object
from addnorm.statistics.run_tables.logs import holds_logs, read_logs
from addnorm.statistics.run_tables.offline_runs import offline_files, read_offline
from addnorm.statistics.run_tables.records import PARQUET, read_parquet
from addnorm.statistics.run_tables.run_files import read_run_files, run_files

_SQLITE = b"SQLite format 3\x00"
SUMMARY = "addnorm.summary"
"""Setting or tag of the run in which addnorm's own trackers keep the verdicts of a study; it was never trained."""
_NOT_TRAINED = frozenset({SUMMARY, f"params.{SUMMARY}", f"tags.{SUMMARY}", f"config.{SUMMARY}"})
Row = tuple[str, dict[str, Any]]
"""Place for messages, and the cells."""


def read_any(path: Path, names: Names) -> tuple[list[RunRow], str | None]:
    """Rows of a table, of a database, or of a folder of logs or runs; and what separates the cells of a table.

    Raises:
        InputError: as the reader of each.
    """
    if path.is_dir() and offline_files(path):
        rows = read_offline(path, names.loss)
    elif run_files(path) and not holds_logs(path):
        return read_run_files(path, names), None
    elif path.is_dir():
        rows = read_logs(path, names.loss, lambda name: names.run is not None and names.matched(name))
        names = replace(names, variant="run_name" if names.variant == "variant" else names.variant)
        if names.run is None and not names.seed:
            # Runs without seeds have names that tell nothing, such as a hash: their folder is the variant.
            rows = [(where, {**cells, "run_name": _folder(cells["run_name"], path)}) for where, cells in rows]
    elif is_database(path):
        rows = read_database(path, names.loss)
    elif form_of(path) == PARQUET:
        rows = read_parquet(path)
    else:
        return read_rows(path, names)
    trained = ((where, cells) for where, cells in rows if not _NOT_TRAINED & cells.keys())
    return [row for where, cells in trained for row in rows_of_object(cells, names, where)], None


def _folder(run: str, path: Path) -> str:
    return run.rpartition("/")[0] or path.name


def is_database(path: Path) -> bool:
    """True for an SQLite file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_database(path: Path, metric: str) -> list[Row]:
    """Every run of MLflow at its last step, or every step of trackio's runs that has the metric.

    Args:
        path: the SQLite file.
        metric: column of the loss, such as `metrics.val_loss` of MLflow or `val_loss` of trackio.

    Raises:
        InputError: another database, or none of its runs has the metric.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            tables = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if {"runs", "metrics", "params", "tags"} <= tables:
                rows, known = _of_mlflow(opened, path, metric)
            elif {"metrics", "configs"} <= tables:
                rows, known = _of_trackio(opened, path, metric)
            else:
                raise InputError(
                    f"{path}: expected a database of MLflow or trackio, got one of {', '.join(sorted(tables)) or 'no tables'}."
                )
    except sqlite3.Error as error:
        raise InputError(f"{path}: expected a whole database, got an error: {error}.") from error
    if metric not in known:
        raise InputError(
            f"{path}: expected a metric {metric!r}, got {', '.join(sorted(known)) or 'none'}.{did_you_mean(metric, known)} "
            "Name one with --columns loss=METRIC."
        )
    return rows


def _of_mlflow(opened: sqlite3.Connection, path: Path, metric: str) -> tuple[list[Row], set[str]]:
    runs: dict[str, dict[str, Any]] = {
        run: {"run_id": run, "status": status}
        for run, status in opened.execute("SELECT run_uuid, status FROM runs WHERE lifecycle_stage = 'active'")
    }
    for table, prefix in (("params", "params."), ("tags", "tags.")):
        for run, key, value in opened.execute(f"SELECT run_uuid, key, value FROM {table}"):
            if run in runs:
                runs[run][prefix + key] = value
    known = set()
    # The last value is that of the largest step, and of repeated steps the one that was written last.
    every = "SELECT run_uuid, key, value, is_nan, step FROM metrics ORDER BY step, timestamp"
    for run, key, value, is_nan, step in opened.execute(every):
        if run in runs:
            name = f"metrics.{key}"
            known.add(name)
            runs[run][name] = math.nan if is_nan else value
            if name == metric:
                runs[run]["step"] = step
    return [(f"{path}, run {run}", {metric: None, **cells}) for run, cells in runs.items()], known


def _of_trackio(opened: sqlite3.Connection, path: Path, metric: str) -> tuple[list[Row], set[str]]:
    by = "run_id" if any(row[1] == "run_id" for row in opened.execute("PRAGMA table_info(metrics)")) else "run_name"
    configs = {
        run: {f"config.{name}": value for name, value in json.loads(config).items()}
        for run, config in opened.execute(f"SELECT {by}, config FROM configs")
    }
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    known: set[str] = set()
    for run, name, step, metrics in opened.execute(f"SELECT {by}, run_name, step, metrics FROM metrics ORDER BY id"):
        values = dict(_numbers(json.loads(metrics)))
        known |= values.keys()
        if metric in values:
            rows[run, step] = {"run_name": name, **configs.get(run, {}), **values, "step": step}
    # A run that never logged the metric died before its first evaluation, or has not come to it.
    begun = opened.execute(f"SELECT DISTINCT {by}, run_name FROM metrics ORDER BY id")
    without = {run: name for run, name in begun if run not in {of for of, _ in rows}}
    unfinished = [
        (f"{path}, run {name}", {"run_name": name, **configs.get(run, {}), metric: None, "state": "unfinished"})
        for run, name in without.items()
    ]
    logged = [(f"{path}, run {cells['run_name']} at step {step}", cells) for (_, step), cells in rows.items()]
    return logged + unfinished, known


def _numbers(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    # trackio writes numbers that JSON lacks as words.
    words = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    for name, value in values.items():
        yield name, words.get(value, value) if isinstance(value, str) else value
