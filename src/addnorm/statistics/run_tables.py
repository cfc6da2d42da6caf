"""Final losses of runs that other code trained: a CSV file, JSON lines, an exported table, a folder of TensorBoard events.

A row is a run. Columns `variant`, `seed` and `loss` are read, under other names if told so; all other columns are ignored. A
loss `nan` or `inf` stands for a run that diverged. In a folder of events, the path of an event file below it names the run:
`deep/seed-0`, `deep-s0` and `deep_0` are variant `deep` at seed 0; the loss is the last value of the tag `loss`.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.event_files import last_scalars
from addnorm.statistics.result import Result

COLUMNS = ("variant", "seed", "loss")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_EVENTS = "events.out.tfevents.*"
_RUN = re.compile(r"(?P<variant>.+?)[/_.-]+(?:seed|s)?[_=-]?(?P<seed>\d+)")


def holds_events(folder: Path) -> bool:
    """True if event files lie somewhere below the folder."""
    return folder.is_dir() and next(folder.rglob(_EVENTS), None) is not None


def holds_list(path: Path) -> bool:
    """True if a JSON file begins with a list, as an exported table does."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.read(64).lstrip().startswith("[")


def columns_from(text: str) -> dict[str, str]:
    """Names of the columns from `variant=model,loss=val_loss`; those that are left out keep their own.

    Raises:
        InputError: text of another form, or a column that is not read.

    Example:
        >>> columns_from("variant=model,loss=val_loss")
        {'variant': 'model', 'seed': 'seed', 'loss': 'val_loss'}
    """
    found = dict(zip(COLUMNS, COLUMNS, strict=True))
    for part in text.split(",") if text else ():
        name, equals, column = part.strip().partition("=")
        if not equals or not column:
            raise InputError(f"columns: expected NAME=COLUMN, such as loss=val_loss, got {part!r}.")
        if name not in COLUMNS:
            raise InputError(
                f"columns: expected one of {', '.join(COLUMNS)} before '=', got {name!r}.{did_you_mean(name, COLUMNS)}"
            )
        found[name] = column
    return found


def read_runs(path: str | Path, columns: Mapping[str, str] | None = None) -> tuple[Result, ...]:
    """Read the runs of a file or of a folder of TensorBoard events.

    Args:
        path: `.csv`, `.tsv`, `.jsonl` or `.ndjson` file, `.json` file with a list of objects, or folder.
        columns: names of the columns, or of the tag for the loss, that differ from `variant`, `seed` and `loss`.

    Raises:
        InputError: no such file, a missing column, a seed or loss that is not a number, two runs of one variant and seed, or
            one seed alone.
    """
    path = Path(path)
    names = {**dict(zip(COLUMNS, COLUMNS, strict=True)), **(columns or {})}
    rows = _events(path, names) if path.is_dir() else _rows(path)
    results: list[Result] = []
    seen: dict[tuple[str, int], str] = {}
    for where, row in rows:
        result = _result(row, names, where)
        first = seen.setdefault((result.variant, result.seed), where)
        if first != where:
            raise InputError(
                f"{where}: expected one run of variant {result.variant!r} at seed {result.seed}, got a second one after "
                f"{first}. Keep the last row of each run."
            )
        results.append(result)
    if not results:
        raise InputError(f"{path}: expected a row for each run, got none.")
    seeds = {result.seed for result in results}
    if len(seeds) == 1:
        raise InputError(
            f"{path}: expected at least two seeds, got seed {results[0].seed} alone. Differences between single runs cannot be "
            "told from noise: run each variant at three seeds or more."
        )
    return tuple(results)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every row with its path and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"results file {path}: {error.strerror or error}. Give the path of a table of runs."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"results file {path}: expected text in UTF-8, got other bytes. Save it as UTF-8.") from error
    if path.suffix in (".csv", ".tsv"):
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
        for record in reader:
            yield f"{path}, line {reader.line_num}", record
    elif path.suffix == ".json":
        for number, record in enumerate(_decoded(text, str(path))):
            yield f"{path}, $[{number}]", record
    else:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield f"{path}, line {number}", _decoded(line, f"{path}, line {number}")


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = "" if ", line " in where else f", line {error.lineno}"
        raise InputError(f"{where}{line}: expected JSON, got an error: {error.msg}.") from error


def _events(folder: Path, names: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One row per folder of events; of several files in it, the value at the last step counts."""
    last: dict[str, tuple[int, float]] = {}
    tags: set[str] = set()
    for path in sorted(folder.rglob(_EVENTS)):
        run = path.parent.relative_to(folder).as_posix()
        scalars = last_scalars(path)
        tags |= scalars.keys()
        if names["loss"] in scalars and (run not in last or scalars[names["loss"]][0] >= last[run][0]):
            last[run] = scalars[names["loss"]]
    if not last:
        raise InputError(
            f"{folder}: expected a scalar {names['loss']!r}, got {', '.join(sorted(tags)) or 'none'}."
            f"{did_you_mean(names['loss'], tags)} Name the tag with --columns loss=TAG."
        )
    for run, (_, loss) in last.items():
        named = _RUN.fullmatch(run)
        if named is None:
            raise InputError(
                f"{folder / run}: expected a folder named by variant and seed, such as deep/seed-0 or deep-s0, got {run!r}."
            )
        yield str(folder / run), {names["variant"]: named["variant"], names["seed"]: named["seed"], names["loss"]: loss}


def _result(row: Any, names: Mapping[str, str], where: str) -> Result:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: expected an object with {', '.join(names.values())}, got {row!r}.")
    for name, column in names.items():
        if row.get(column) is None:
            known = [str(key) for key in row if key is not None]
            raise InputError(
                f"{where}: expected a column {column!r}, got {', '.join(known) or 'none'}.{did_you_mean(column, known)} "
                f"If it has another name, give --columns {name}=NAME."
            )
    variant, seed, loss = (row[names[name]] for name in COLUMNS)
    number = _number(seed, names["seed"], where)
    if not number.is_integer():
        raise InputError(f"{where}: expected a whole number in column {names['seed']!r}, got {seed!r}.")
    value = _number(
        loss, names["loss"], where, " Write nan for a run that diverged, and leave out one that has not ended."
    )
    return Result(
        variant=str(variant),
        seed=int(number),
        loss=value if math.isfinite(value) else None,
        state="finished" if math.isfinite(value) else "diverged",
        reason=None if math.isfinite(value) else f"its loss is {value}",
    )


def _number(text: Any, column: str, where: str, advice: str = "") -> float:
    try:
        return math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        raise InputError(f"{where}: expected a number in column {column!r}, got {text!r}.{advice}") from None
