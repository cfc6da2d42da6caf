"""Scores of single items: sample files of lm-evaluation-harness and of Inspect, or a table with a row per item.

lm-evaluation-harness writes `samples_TASK_DATE.jsonl` beside its results, one line per item and filter: `doc_id`, `doc`,
`filter`, the names in `metrics`, and a number for each of them. Inspect writes one log per task and model, `.eval` or JSON;
scores in it are C, I, P or N (right, wrong, partly, no answer) or numbers.

The folder of a file names the run, by variant and seed as in a folder of events (`deep/seed-0`, `deep-s0`, or
`run={variant}_{seed}`). A name without a seed is one checkpoint of a variant of that name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.run_tables.columns import ITEMS, Names
from addnorm.statistics.run_tables.event_folder import run_named
from addnorm.statistics.run_tables.files import decoded, read_rows, read_text
from addnorm.statistics.run_tables.inspect_logs import is_inspect_log, read_inspect_log
from addnorm.statistics.run_tables.numerals import NotANumber, Notation, is_missing, number, whole
from addnorm.statistics.run_tables.records import Source, is_in_memory, read_records

_SAMPLES = re.compile(r"samples_(?P<task>.+)_\d{4}-\d{2}-\d{2}T[\d.:-]+\.jsonl")
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
Run = tuple[str, int | None]
"""Variant and seed; None for one checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ItemTable:
    """Scores of one metric of one task."""

    task: str
    metric: str
    scores: Mapping[Run, Mapping[str, float]]
    """Mean score of each run on each item, over its repetitions."""
    documents: Mapping[str, str]
    """The document of each item, where one is told."""

    def matrix(self, runs: list[Run], items: list[str]) -> np.ndarray:
        """Scores of some runs on some items, shape run × item."""
        return np.array([[self.scores[run][item] for item in items] for run in runs])


@dataclass(frozen=True)
class _Score:
    """One score of one run on one item."""

    task: str
    metric: str
    run: Run
    item: str
    value: float
    document: str | None
    repetition: object
    where: str


def read_items(source: Source, columns: Mapping[str, str] | None = None) -> list[ItemTable]:
    """Read every task and metric.

    Args:
        source: a folder or one file of samples; or a table with the columns `variant`, `seed`, `item` and `loss` for the score.
        columns: names of the columns; of samples, `loss` is the metric, `document` a path into what describes the item (such as
            `doc.text_id` or `metadata.text_id`), `task` one task, `run` the form of the folders' names.

    Raises:
        InputError: a file that cannot be read, a log that has not ended, an item twice in a run, or a metric that is not there.
    """
    names = Names.of(columns, further=ITEMS)
    path = None if is_in_memory(source) else Path(source)  # type: ignore[arg-type]
    files = [] if path is None else _sample_files(path)
    if files:
        assert path is not None
        scores = [score for file in files for score in _of_file(file, path, names)]
        wanted = names.loss if names.loss_named else None
        if wanted is not None:
            known = sorted({score.metric for score in scores})
            if wanted not in known:
                raise InputError(
                    f"{path}: expected a metric {wanted!r}, got {', '.join(known)}.{did_you_mean(wanted, known)} Name one with "
                    "--columns loss=METRIC."
                )
            scores = [score for score in scores if score.metric == wanted]
        if names.further["task"]:
            scores = [score for score in scores if score.task == names.further["task"]]
    elif path is not None and path.is_dir():
        raise InputError(
            f"{path}: expected samples_TASK_DATE.jsonl of lm-evaluation-harness (its option --log_samples) or logs of "
            "Inspect (.eval or JSON), got neither. Give the folder that holds them."
        )
    else:
        scores = list(_of_table(source, path, names))
    if not scores:
        raise InputError(f"{path or 'table'}: expected scores of items, got none. Check the task and the columns.")
    return _tables(scores)


def _tables(scores: list[_Score]) -> list[ItemTable]:
    first: dict[tuple[object, ...], _Score] = {}
    by_table: dict[tuple[str, str], dict[Run, dict[str, list[float]]]] = {}
    documents: dict[str, dict[str, str]] = {}
    for score in scores:
        key = (score.task, score.metric, score.run, score.item, score.repetition)
        other = first.setdefault(key, score)
        if other is not score:
            seed = "" if score.run[1] is None else f" at seed {score.run[1]}"
            raise InputError(
                f"{score.where}: expected item {score.item} of task {score.task} once for variant {score.run[0]!r}{seed}, got "
                f"a second one after {other.where}. Keep the files of one evaluation of each run."
            )
        runs = by_table.setdefault((score.task, score.metric), {})
        runs.setdefault(score.run, {}).setdefault(score.item, []).append(score.value)
        if score.document is not None:
            documents.setdefault(score.task, {})[score.item] = score.document
    return [
        ItemTable(
            task=task,
            metric=metric,
            scores={run: {item: float(np.mean(each)) for item, each in of.items()} for run, of in runs.items()},
            documents=documents.get(task, {}),
        )
        for (task, metric), runs in by_table.items()
    ]


def _sample_files(path: Path) -> list[Path]:
    if path.is_dir():
        named = [file for file in sorted(path.rglob("*.jsonl")) if _SAMPLES.fullmatch(file.name)]
        logs = [*path.rglob("*.json"), *path.rglob("*.eval")]
        return named + [file for file in sorted(logs) if is_inspect_log(file)]
    if path.is_file() and (_SAMPLES.fullmatch(path.name) or is_inspect_log(path)):
        return [path]
    return []


def _of_file(file: Path, root: Path, names: Names) -> Iterator[_Score]:
    within = file.parent.relative_to(root).as_posix() if root.is_dir() else "."
    if file.suffix == ".jsonl":
        run = _run(root.name if within == "." else within, root, names)
        yield from _of_harness(file, run, names)
    else:
        yield from _of_inspect(file, None if within == "." else within, root, names)


def _run(name: str, root: Path, names: Names) -> Run:
    try:
        return run_named(name, names, root)
    except InputError:
        if names.run is not None:
            raise
        return name, None


def _of_harness(file: Path, run: Run, names: Names) -> Iterator[_Score]:
    named = _SAMPLES.fullmatch(file.name)
    assert named is not None
    text = read_text(file)
    lines = [(place, line) for place, line in enumerate(text.split("\n"), start=1) if line.strip()]
    samples = [(f"{file}, line {place}", decoded(line, f"{file}, line {place}")) for place, line in lines]
    for where, sample in samples:
        if not isinstance(sample, dict) or not {"doc_id", "metrics"} <= sample.keys():
            raise InputError(
                f"{where}: expected a sample with doc_id and metrics, got {str(sample)[:60]}. Log samples anew."
            )
    filters = {sample.get("filter") for _, sample in samples}
    for where, sample in samples:
        for metric in sample["metrics"]:
            yield _Score(
                task=named["task"],
                metric=metric if len(filters) == 1 else f"{metric}@{sample.get('filter')}",
                run=run,
                item=str(sample["doc_id"]),
                value=_score(sample.get(metric), where, metric),
                document=_document(sample, names, where),
                repetition=None,
                where=where,
            )


def _of_inspect(file: Path, folder: str | None, root: Path, names: Names) -> Iterator[_Score]:
    log, samples = read_inspect_log(file)
    about = log.get("eval", {})
    run = _run(folder if folder is not None else str(about.get("model", root.stem)), root, names)
    for where, sample in samples:
        if sample.get("error") is not None:
            raise InputError(
                f"{where}: expected a scored item, got an error. Score it again, or remove it from all logs."
            )
        for scorer, score in (sample.get("scores") or {}).items():
            value = score.get("value")
            parts = value.items() if isinstance(value, dict) else [("", value)]
            for name, part in parts:
                yield _Score(
                    task=str(about.get("task", file.stem)),
                    metric=f"{scorer}/{name}" if name else scorer,
                    run=run,
                    item=str(sample.get("id")),
                    value=_score(part, where, scorer),
                    document=_document(sample, names, where),
                    repetition=sample.get("epoch"),
                    where=where,
                )


def _document(sample: Mapping[str, Any], names: Names, where: str) -> str | None:
    path = names.further["document"]
    if not path:
        return None
    value: Any = sample
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(map(str, value)) if isinstance(value, Mapping) else "no fields"
            raise InputError(
                f"{where}: expected {path}, got {known} instead of {name!r}. Name what describes the document."
            )
        value = value[name]
    return json.dumps(value, sort_keys=True)


def _score(value: object, where: str, metric: str) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    try:
        return number(value, Notation("."))
    except NotANumber:
        raise InputError(
            f"{where}: expected a number for {metric!r} of one item, got {str(value)[:60]!r}. Choose a metric that scores "
            "items one by one with --columns loss=METRIC."
        ) from None


def _of_table(source: Source, path: Path | None, names: Names) -> Iterator[_Score]:
    rows = read_records(source, names) if path is None else read_rows(path, names)[0]  # type: ignore[arg-type]
    for row in rows:
        if is_missing(row.item):
            raise InputError(
                f"{row.where}: expected an item, got none. Name its column with --columns item=NAME; a table of runs without "
                "items is ranked without --as downstream."
            )
        try:
            seed = None if row.seed is None else whole(row.seed)
        except NotANumber:
            raise InputError(
                f"{row.where}: expected a whole number in column {names.seed!r}, got {row.seed!r}."
            ) from None
        yield _Score(
            task="" if is_missing(row.task) else str(row.task),
            metric=names.loss,
            run=(str(row.variant), seed),
            item=str(row.item),
            value=_score(row.loss, row.where, names.loss),
            document=None if is_missing(row.document) else str(row.document),
            repetition=None,
            where=row.where,
        )
