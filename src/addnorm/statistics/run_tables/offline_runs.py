"""Runs that W&B or SwanLab recorded on disk: files `run-ID.wandb` and `run-ID.swanlab`, read without either.

Both are logs of LevelDB behind seven bytes: blocks of 32 KiB hold parts of records, each with checksum (4 bytes), length (2,
little-endian) and type (1: whole, 2: first, 3: middle, 4: last part). A record is a `Record` message of protocol buffers. Of
W&B's, field 2 is a logged step (`item` with key or nested key, and the value as JSON), field 17 the run with its settings and
its name, field 18 its end with an exit code. Of SwanLab's, field 10 is the run with its name, field 13 one logged number, field
11 the end with a state; its settings are in `files/config.yaml`.

Rows have the names of the table of runs that both export: `Name`, `State`, the settings and the logged numbers as they are, and
`_step`. A run whose end is not in its file is at work, or its process died: it does not count. A resumed run has a file for
each part, of one run ID; what a later part logs at a step of an earlier one replaces it.

Source: W&B, `wandb/proto/wandb_internal.proto` and `wandb/sdk/internal/datastore.py`; SwanLab, `swanlab/proto/swanlab/record`.
Differs from the source: checksums are not checked; a record that is cut off at the end of a file, as after a kill, is left out.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.run_tables.event_files import message_fields

_HEADERS = {".wandb": b":W&B", ".swanlab": b":SWL"}
_HEADER_SIZE, _BLOCK = 7, 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_STATES = {0: "running", 1: "finished", 2: "crashed", 3: "aborted"}
"""SwanLab's `RunState`."""


@dataclass
class _Run:
    """Cells that the files of one run give."""

    cells: dict[str, Any]
    steps: dict[int, dict[str, Any]] = field(default_factory=dict)


def offline_files(folder: Path) -> list[Path]:
    """Files of runs below a folder; folders are named by the time at which a part of a run began."""
    return sorted(path for path in folder.rglob("run-*") if path.suffix in _HEADERS and path.is_file())


def read_offline(folder: Path, metric: str) -> list[tuple[str, dict[str, Any]]]:
    """Place and cells of every step at which a run logged the metric; of a run without it, one row.

    Raises:
        InputError: a file of another form, or no run has the metric.
    """
    runs: dict[str, _Run] = {}
    for path in offline_files(folder):
        identity = path.stem.removeprefix("run-")
        run = runs.setdefault(identity, _Run({"Name": identity}))
        run.cells["State"] = "running"
        try:
            data = path.read_bytes()
            if not data.startswith(_HEADERS[path.suffix]):
                raise IndexError("no header")
            (_read_wandb if path.suffix == ".wandb" else _read_swanlab)(data, run)
            run.cells.update(_settings(path.parent / "files" / "config.yaml") if path.suffix == ".swanlab" else ())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}. Leave it out.") from error
        except (IndexError, struct.error, TypeError, ValueError) as error:
            raise InputError(f"{path}: expected a run of W&B or SwanLab, got other bytes. Leave it out.") from error
    known = {name for run in runs.values() for logged in run.steps.values() for name in logged} - {"_step"}
    if metric not in known:
        raise InputError(
            f"{folder}: expected a logged number {metric!r}, got {', '.join(sorted(known)) or 'none'}."
            f"{did_you_mean(metric, known)} Name one with --columns loss=NAME."
        )
    return [
        (f"{folder}, run {run.cells['Name']}", {**run.cells, metric: None, **logged})
        for run in runs.values()
        for logged in [each for each in run.steps.values() if metric in each] or [{}]
    ]


def _read_wandb(data: bytes, run: _Run) -> None:
    for number, content in _records(data):
        if number == 2:
            logged = dict(_items(content))
            run.steps.setdefault(int(logged.get("_step", 0)), {}).update(logged)
        elif number == 17:
            for name, part in message_fields(content):
                if name == 4:
                    run.cells.update((key, value) for key, value in _items(part) if key != "_wandb")
                elif name == 8 and part:
                    run.cells["Name"] = part.decode()
        elif number == 18:
            run.cells["State"] = "failed" if dict(message_fields(content)).get(1, 0) else "finished"


def _items(content: bytes) -> Iterator[tuple[str, Any]]:
    """Keys and values of a step or of settings; a nested key is joined by points, as W&B shows it."""
    for number, item in message_fields(content):
        if number != 1:
            continue
        key, value = [], "null"
        for name, part in message_fields(item):
            if name in (1, 2) and part:
                key.append(part.decode())
            elif name == 16:
                value = part.decode()
        decoded = json.loads(value)
        # Numbers that JSON lacks are written as JavaScript does, which Python reads, or as words.
        yield ".".join(key), float(decoded) if decoded in ("NaN", "Infinity", "-Infinity") else decoded


def _read_swanlab(data: bytes, run: _Run) -> None:
    for number, content in _records(data):
        parts = dict(message_fields(content)) if number in (10, 11, 13) else {}
        if number == 10 and parts.get(4):
            run.cells["Name"] = parts[4].decode()
        elif number == 11:
            run.cells["State"] = _STATES.get(parts.get(1, 0), "crashed")
        elif number == 13:
            # A number that is 0 has no field, as protocol buffers leave out what is the default.
            value = dict(message_fields(parts.get(5, b""))).get(1, bytes(8))
            step = int(parts.get(2, 0))
            run.steps.setdefault(step, {"_step": step})[parts[1].decode()] = struct.unpack("<d", value)[0]


def _settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    import yaml  # 20 ms that no other table needs

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return {str(name): entry["value"] for name, entry in (content or {}).items() if "value" in entry}


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of every field of bytes that a record has."""
    for record in _whole(data):
        yield from (each for each in message_fields(record) if isinstance(each[1], bytes))


def _whole(data: bytes) -> Iterator[bytes]:
    """The records of a file, put together from their parts."""
    place, parts = _HEADER_SIZE, b""
    while place + 7 <= len(data):
        # Where no further part fits, a block ends with fewer than seven zero bytes.
        if (left := _BLOCK - place % _BLOCK) < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        part = data[place + 7 : place + 7 + length]
        if len(part) < length or kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST):
            return
        parts = part if kind in (_WHOLE, _FIRST) else parts + part
        place += 7 + length
        if kind in (_WHOLE, _LAST):
            yield parts
