"""Folders in which every run has a file of its own: a table, a `trainer_state.json` of Transformers, or a folder of MLflow.

*Tables* (`.csv`, `.tsv`, JSON lines) such as those of Lightning's and Keras' loggers: the path of a file names its run, without
the file's own name where all have the same one. A table that has the columns `variant` and `seed` is read by them.
*Transformers*: the newest state of a run, its checkpoints included. A run has ended if its records hold the summary that
`Trainer.train` writes at its end, or if all planned steps were made. *MLflow's* `mlruns` has rows as its database has.

Source: huggingface/transformers, `trainer.py`, `trainer_callback.py`; mlflow/mlflow, `store/tracking/file_store.py`.
Differs from the source: nothing.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.fields import flat_fields
from addnorm.statistics.run_tables import files as tables
from addnorm.statistics.run_tables.columns import Names, RunRow
from addnorm.statistics.run_tables.event_folder import is_run, run_named

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_STATE, _META = "trainer_state.json", "meta.yaml"
_CHECKPOINT = re.compile(r"(?:^|/)checkpoint-\d+$")
_NO_LOSS = "unfinished"
"""State of a run in whose file the metric is not."""
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""MLflow's `RunStatus`."""


def run_files(folder: Path) -> list[Path]:
    """The files of the runs below a folder, all of one kind; none of studies, and none that are hidden."""
    if not folder.is_dir() or next(folder.rglob("study.json"), None) is not None:
        return []
    below = ((path, f"/{path.relative_to(folder).as_posix()}") for path in sorted(folder.rglob("*")))
    files = [path for path, name in below if "/." not in name and path.is_file()]
    return (
        [path for path in files if path.name == _META and (path.parent / "metrics").is_dir()]
        or [path for path in files if path.name == _STATE]
        or [path for path in files if tables.form_of(path) in _TABLES and path.name != "events.jsonl"]
    )


def read_run_files(folder: Path, names: Names) -> list[RunRow]:
    """Every row of every run; of MLflow, the last one of each.

    Raises:
        InputError: no run has the metric, a file is damaged, or a name tells no variant and seed.
    """
    rows: list[RunRow] = []
    known: set[str] = set()
    files = _newest(run_files(folder))
    same_name = len(files) > 1 and len({path.name for path in files}) == 1
    alone = replace(names, variant="", seed="", run=None)
    for place, path in enumerate(files):
        records = _records(path, names)
        columns = dict.fromkeys(name for record in records for name in record)
        known |= columns.keys()
        has_columns = not names.lacking(columns) or path.name == _META
        read, made = names if has_columns else alone, []
        if names.loss not in columns and not has_columns:
            # The same file of other runs has the metric: this one was not evaluated.
            made = (
                [RunRow(str(path), state=_NO_LOSS)]
                if same_name or is_run(path.relative_to(folder).with_suffix("").as_posix(), names, folder)
                else []
            )
        elif tables.form_of(path) in tables.SEPARATED:
            made = tables.read_rows(path, read)[0]
        else:
            for record in records:
                made += tables.rows_of_object({**columns, names.loss: None, **record}, read, str(path))
        if not made and not has_columns and names.loss in columns:
            made = [RunRow(str(path), state=_NO_LOSS)]
        if made and not has_columns:
            within = path.parent if same_name else path.with_name(Path(re.sub(r"\.gz$", "", path.name)).stem)
            name = _CHECKPOINT.sub("", within.relative_to(folder).as_posix())
            variant, seed = (name, None) if names.run else (name.rpartition("/")[0] or folder.name, place)
            if names.run is None and names.seed:
                variant, seed = run_named(name, names, folder)
            made = [replace(row, variant=variant, seed=seed) for row in made]
        rows += made
    if names.loss not in known:
        raise InputError(
            f"{folder}: expected a number {names.loss!r} in the files of its runs, got {', '.join(sorted(known)) or 'none'}."
            f"{did_you_mean(names.loss, known)} Name one with --columns loss=NAME."
        )
    # A folder of another try of the same run may be as good as empty.
    runs = [names.matched(str(row.variant)) if names.run else (row.variant, row.seed) for row in rows]
    told_of = [run for run, row in zip(runs, rows, strict=True) if row.state != _NO_LOSS]
    return [row for run, row in zip(runs, rows, strict=True) if row.state != _NO_LOSS or run not in told_of]


def _newest(files: Sequence[Path]) -> list[Path]:
    """Of the states of a run and its checkpoints, that of the most steps; of other files, all."""
    newest: dict[Path | str, tuple[int, Path]] = {}
    for path in files:
        is_state = path.name == _STATE
        run, steps = (
            (_CHECKPOINT.sub("", path.parent.as_posix()), _state(path)["global_step"]) if is_state else (path, 0)
        )
        newest[run] = max((steps, path), newest.get(run, (0, path)))
    return [path for _, path in newest.values()]


def _state(path: Path) -> dict[str, Any]:
    state = tables.decoded(tables.read_text(path), str(path))
    kinds = {"global_step": int, "max_steps": int, "log_history": list}
    if not isinstance(state, dict) or not all(isinstance(state.get(name), kind) for name, kind in kinds.items()):
        raise InputError(f"{path}: expected a state of Transformers' Trainer, got other JSON. Leave it out.")
    return state


def _records(path: Path, names: Names) -> list[dict[str, Any]]:
    """The records of a file; of separated cells, the names of the columns alone."""
    if path.name == _META:
        return _of_mlflow(path, names.loss)
    if path.name == _STATE:
        state = _state(path)
        history = state["log_history"]
        ended = state["global_step"] >= state["max_steps"] or any("train_runtime" in record for record in history)
        fields = {
            **{name: None for record in history for name in record},
            "state": "finished" if ended else "unfinished",
        }
        # What is evaluated anew at a step, such as the best checkpoint at the end, replaces what was there.
        logged = {record.get("step"): {**fields, **record} for record in history if names.loss in record}
        last = max((step for step in logged if step is not None), default=0)
        if any(record.get("step", 0) > last and _is_nan(record.get("loss")) for record in history):
            logged |= {step: {**cells, "state": "diverged"} for step, cells in logged.items()}
        return [*logged.values()] or [fields]
    if tables.form_of(path) in tables.SEPARATED:
        return [dict.fromkeys(tables.header_of(path, names))]
    records = []
    for number, line in enumerate(tables.read_text(path).split("\n"), start=1):
        record = tables.decoded(line, f"{path}, line {number}") if line.strip() else {}
        if not isinstance(record, dict):
            raise InputError(f"{path}, line {number}: expected an object with names of numbers, got {line[:60]}.")
        records += [dict(flat_fields(record))] if record else []
    return records


def _is_nan(loss: object) -> bool:
    return isinstance(loss, float) and not math.isfinite(loss)


def _of_mlflow(meta: Path, metric: str) -> list[dict[str, Any]]:
    """The cells of a run that was not deleted."""
    about = dict(line.partition(": ")[::2] for line in tables.read_text(meta).split("\n"))
    if about.get("lifecycle_stage") != "active":
        return []
    cells: dict[str, Any] = {"run_id": meta.parent.name, "status": _STATUS.get(about.get("status", ""), "")}
    for path in sorted(each for each in meta.parent.rglob("*") if each.is_file()):
        kind, _, name = path.relative_to(meta.parent).as_posix().partition("/")
        if kind in ("params", "tags", "metrics"):
            cells[f"{kind}.{name}"] = tables.read_text(path).strip()
        if kind == "metrics":
            try:
                # Of a repeated step, what was written last: a resumed run.
                lines = ([*line.split(), "0"][:3] for line in cells[f"metrics.{name}"].split("\n"))
                step, _, value = max((int(step), place, value) for place, (_, value, step) in enumerate(lines))
            except ValueError:
                raise InputError(
                    f"{path}: expected time, value and step in each line, got other text. Leave it out."
                ) from None
            cells |= {f"metrics.{name}": value} | ({"step": step} if f"metrics.{name}" == metric else {})
    return [cells]
