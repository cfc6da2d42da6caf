"""Rows of a file: separated cells with a header, JSON lines, or a JSON list; also compressed with gzip."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.fields import flat_fields
from addnorm.statistics.run_tables.columns import Names, RunRow, ending, missing
from addnorm.statistics.run_tables.doubts import kept
from addnorm.statistics.run_tables.numerals import is_missing, stripped

SEPARATED = (".csv", ".tsv", ".txt", ".md")
SUFFIXES = (*SEPARATED, ".jsonl", ".ndjson")
_GZIP = b"\x1f\x8b"
_SWANLAB = ["run_id", "experiment_name", "description", "project", "workspace", "timestamp", "logdir", "url"]
"""First columns of SwanLab's CSV writer. For a later run it adds a column to the header, and no cell to the rows before."""
_ZIP = b"PK\x03\x04"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SEPARATORS = (",", ";", "\t", "|", " ")
_DECLARED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)


def form_of(path: Path) -> str:
    """The suffix that tells the form, in small letters and without `.gz`.

    Example:
        >>> form_of(Path("runs.CSV.gz"))
        '.csv'
    """
    return Path(path.name[: -len(".gz")] if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def holds_list(path: Path) -> bool:
    """True if a JSON file begins with a list, as an exported table does."""
    with path.open("rb") as file:
        compressed = file.read(2) == _GZIP
    try:
        with gzip.open(path) if compressed else path.open("rb") as opened:
            begin = opened.read(4096)
    except (OSError, EOFError, zlib.error):
        return False
    encoding = "utf-16" if begin.startswith(_UTF_16) else "utf-8-sig"
    return begin.decode(encoding, errors="replace").lstrip().startswith("[")


def read_rows(path: Path, names: Names) -> tuple[list[RunRow], str | None]:
    """Every row, and what separates the cells; None for JSON.

    Raises:
        InputError: no such file, not text, a row that does not fit the header, or a missing column.
    """
    text, form = read_text(path), form_of(path)
    if form in SEPARATED:
        return _separated(text, path, names, "\t" if form == ".tsv" else ",")
    if form == ".json":
        records = decoded(text, str(path))
        if not isinstance(records, list):
            raise InputError(f"{path}: expected a list of objects, got {type(records).__name__}.")
        places = ((f"{path}, $[{number}]", record) for number, record in enumerate(records))
    else:
        # Not `splitlines`: JSON may hold U+2028 and others that it takes for ends of lines.
        lines = enumerate(text.replace("\r\n", "\n").split("\n"), start=1)
        places = (
            (where, decoded(line, where))
            for where, line in ((f"{path}, line {number}", line) for number, line in lines)
            if line.strip()
        )
    return [row for where, record in places for row in rows_of_object(record, names, where)], None


def header_of(path: Path, names: Names) -> list[str]:
    """Names of the columns of separated cells, in the spelling that is wanted."""
    text = read_text(path)
    separator = _separator(text, names, "\t" if form_of(path) == ".tsv" else ",")
    return names.spelled(next((cells for _, cells in _records(text, path, separator) if cells[0][:1] != "#"), []))


def read_text(path: Path) -> str:
    """The text of a file, also of a compressed one.

    Raises:
        InputError: no such file, or not text.
    """
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"results file {path}: expected a whole gzip file, got a damaged one: {error}.") from error
    except OSError as error:
        raise InputError(
            f"results file {path}: {error.strerror or error}. Give the path of a table of runs."
        ) from error
    if data.startswith(_ZIP):
        raise InputError(
            f"results file {path}: expected text, got a spreadsheet or another zip archive. Save its table as CSV."
        )
    try:
        text = data.decode("utf-16" if data.startswith(_UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"results file {path}, line {line}: expected text in UTF-8, got other bytes. Save it as UTF-8."
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InputError(f"results file {path}, line {line}: expected text, got a NUL byte. Save it as UTF-8.")
    return text


def _separated(text: str, path: Path, names: Names, usual: str) -> tuple[list[RunRow], str]:
    if (begin := text.lstrip()[:1]) in ("[", "{"):
        form = ".json" if begin == "[" else ".jsonl"
        raise InputError(
            f"{path}, line 1: expected the names of the columns, got JSON. Name the file {path.stem}{form}."
        )
    # Excel tells itself the separator by a first line such as `sep=;`.
    declared = _DECLARED.match(text)
    separator = _separator(text, names, usual) if declared is None else declared[1]
    records = _records(text, path, separator)
    if declared is not None:
        next(records)
    header: list[str] | None = None
    rows: list[RunRow] = []
    for line, cells in records:
        where = f"{path}, line {line}"
        if header is None:
            if _is_rule(cells):
                continue
            if cells[0].startswith("#"):
                named = [cells[0].lstrip("# "), *cells[1:]]
                if names.lacking(names.spelled(named)):
                    continue
                cells = named
            header, width = names.spelled(cells), len(cells)
            wide = names.runs_in(header)
            _require_once(wide, header, where)
            places = {} if wide else _places(header, names, where, after=records)
            read = {name: header[place] for name, place in places.items()}
            unread = {each: place for place, each in enumerate(header[:width]) if each and each not in read.values()}
            held_out = names.held_out(header)
        elif (spelled := names.spelled(cells)) != header and not _is_rule(cells):
            if cells[0].startswith("#") and len(cells) != len(header):
                continue
            if not names.lacking(spelled):
                raise InputError(
                    f"{where}: expected a run, got the header of another table. Give its rows in the columns of the first one."
                )
            if header[: len(_SWANLAB)] == _SWANLAB:
                cells += [""] * (width - len(cells))
            _require_fit(cells, header[:width], where)
            if wide or width < len(header):
                row = names.joined(dict(zip(header[:width], cells, strict=False)))
            if wide:
                rows += _of_runs(row, names, wide, where)
                continue
            cells = cells if width == len(header) else [*cells[:width], str(row[names.variant])]
            known: dict[str, Any] = {name: cells[place] for name, place in places.items()}
            if "state" in known:
                known["state"] = ending(header[places["state"]], known["state"])
            known["step_column"] = read.get("step")
            rows.append(RunRow(where, **known, unread=kept(unread, cells, read, names), held_out=held_out))
    if header is None:
        raise InputError(f"{path}, line 1: expected the names of the columns, got an empty file.")
    return rows, separator


def _separator(text: str, names: Names, usual: str) -> str:
    """The separator of a file: the usual one unless only another one divides one of its first lines into the columns that are
    read; of a wide table, the one that finds the most runs."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n", 50)[:50]
    best, most = usual, 0
    for separator in (usual, *(each for each in _SEPARATORS if each != usual)):
        for line in lines:
            named = [stripped(cell).strip("\"'# ") for cell in line.split(separator)]
            if not names.lacking(names.spelled(named)):
                return separator
            if (runs := len(names.runs_in(named))) > most and len(named) > 1:
                best, most = separator, runs
    return best


def _records(text: str, path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """First line and cells of every record that is not empty."""
    limit = csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=separator != "\t"
        )
        line = 1
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise InputError(
                    f"{path}, line {line}: expected cells in matching quotes, got an error: {error}. Close the quotes."
                ) from error
            if any(cells := [stripped(cell) for cell in cells]):
                yield line, cells
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _places(header: Sequence[str], names: Names, where: str, after: Iterable[tuple[int, list[str]]]) -> dict[str, int]:
    """Places of the columns in a header, whose names a later row has if this is only a title."""
    if lacking := names.lacking(header):
        for line, cells in islice(after, 20):
            if not names.lacking(names.spelled(cells)):
                raise InputError(
                    f"{where}: expected the names of the columns, got {_shortened([each for each in header if each])}; line "
                    f"{line} has them. Remove what is above it."
                )
        raise missing(lacking, tuple(header), where)
    read = {**names.required, **names.optional(tuple(header), where)}
    _require_once(read.values(), header, where)
    return {name: header.index(column) for name, column in read.items()}


def _is_rule(cells: Sequence[str]) -> bool:
    """True for a line of a table in text, such as that below the header in Markdown."""
    return any(cells) and all(re.fullmatch(r":?[-=+]+:?|", cell) for cell in cells)


def _require_once(columns: Iterable[str], header: Sequence[str], where: str) -> None:
    for column in columns:
        # pandas numbers the columns that a file has twice.
        count = header.count(column) + (f"{column}.1" in header)
        if count > 1:
            raise InputError(f"{where}: expected one column {column!r}, got {count}. Remove the others.")


def _of_runs(row: Mapping[str, Any], names: Names, wide: Mapping[str, Mapping[str, str]], where: str) -> list[RunRow]:
    """The runs of one row of a wide table, whose columns are runs; an empty cell is no run."""
    known = tuple(row)
    read = names.optional(known, where)
    further = _meant(read, row)
    told_by = {*read.values(), names.variant, names.seed, *wide}
    unread = kept({each: each for each in known if each and each not in told_by}, row, read, names)
    made = []
    for column, parts in wide.items():
        if is_missing(row[column]):
            continue
        by_column = {"variant": names.variant, "seed": names.seed}
        fields: dict[str, Any] = {name: row.get(of) for name, of in by_column.items() if of}
        fields.update(parts)
        if lacking := {name: getattr(names, name) for name, value in fields.items() if value is None}:
            raise missing(lacking, known, where)
        made.append(RunRow(f"{where}, column {column!r}", **{**further, **fields, "loss": row[column]}, unread=unread))
    return made


def _require_fit(cells: list[str], header: Sequence[str], where: str) -> None:
    """Refuse a row that does not fit the header."""
    if cells[0].startswith("#"):
        raise InputError(f"{where}: expected a run, got a row that begins with '#'. Remove it to leave the run out.")
    if len(cells) < len(header) or any(cells[len(header) :]):
        more = len(cells) > len(header)
        advice = (
            "A decimal comma or a separator inside a cell needs quotes, or write a decimal point."
            if more
            else "Write an empty cell for a value that is missing."
        )
        raise InputError(
            f"{where}: expected {len(header)} cells as the header has, got {len(cells)}: {_shortened(cells)}. {advice}"
        )


def rows_of_object(record: Any, names: Names, where: str) -> list[RunRow]:
    """The run of one row that is an object, or the runs of a row of a wide table.

    Raises:
        InputError: not an object, or one without a column that is read.
    """
    if not isinstance(record, Mapping):
        got = repr(record) if len(repr(record)) <= 60 else f"{repr(record)[:60]}…"
        raise InputError(f"{where}: expected an object with {', '.join(names.required.values())}, got {got}.")
    cells = dict(zip(names.spelled([*map(str, record)]), record.values(), strict=False))
    if any(isinstance(value, Mapping) for value in cells.values()):
        fields = list(flat_fields(cells))
        cells = dict(fields)
        _require_once(cells.keys() & names.required.values(), [name for name, _ in fields], where)
    cells = names.joined(cells)
    if wide := names.runs_in(tuple(cells)):
        return _of_runs(cells, names, wide, where)
    if lacking := names.lacking(cells):
        raise missing(lacking, cells, where)
    read = {**names.required, **names.optional(cells, where)}
    unread = {name: name for name in cells if name and name not in read.values()}
    return [
        RunRow(where, **_meant(read, cells), unread=kept(unread, cells, read, names), held_out=names.held_out(cells))
    ]


def _meant(columns: Mapping[str, str], cells: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a row by what they mean."""
    made = {name: cells[column] for name, column in columns.items()}
    made["step_column"] = columns.get("step")
    if "state" in made:
        made["state"] = ending(columns["state"], made["state"])
    return made


def _shortened(cells: Sequence[str]) -> str:
    return ", ".join(cell if len(cell) <= 20 else f"{cell[:20]}…" for cell in cells[:6])


def decoded(text: str, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        InputError: not JSON, or an object that names a field twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_float=_exact)
    except json.JSONDecodeError as error:
        line, advice = "", "Write each object in a line of its own."
        if ", line " not in where:
            line, advice = f", line {error.lineno}", "Write a list of objects; a file with one in each line is .jsonl."
        raise InputError(f"{where}{line}: expected JSON, got an error: {error.msg}. {advice}") from error
    except (_Repeated, RecursionError, ValueError) as error:
        raise InputError(f"{where}: expected one row of plain values, got {error}.") from error


class _Repeated(ValueError):
    """An object that names a field twice."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for name in made if sum(name == other for other, _ in pairs) > 1)
        raise _Repeated(f"the field {twice!r} twice")
    return made


def _exact(text: str) -> float | str:
    """The number; its text where a float cannot hold it, which is refused where it is read."""
    value = float(text)
    return text if value in (float("inf"), float("-inf")) else value
