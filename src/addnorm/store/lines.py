"""Append-only files with one JSON object per line, which may be read while they are written.

A line is complete once its line break is written. A crash can leave a torn last line: readers ignore it, the next writer
truncates it. Anything else that is not a JSON object is damage and raises an error.

JSON has no NaN and no infinities. They are written as the strings "NaN", "Infinity" and "-Infinity" and read back as
numbers; those three strings are therefore not available as values.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, JobError
from addnorm.store.files import MISSING, Damaged, disk_error, to_bytes
from addnorm.store.lock import Lock

Record = dict[str, Any]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BLOCK_BYTES = 1 << 16
_TRIES, _PAUSE_S = 200, 0.01


class LineWriter:
    """Single writer of a file of lines. Each line is passed to the operating system at once, so it survives kill -9.

    Opening the file truncates a torn last line. A write that fails leaves no partial line.

    Raises:
        DiskFull, JobError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # O_APPEND makes the kernel choose the place of each write, so that even a second writer by mistake adds
            # lines instead of overwriting some. `_end` is what this writer believes to be the end; `_require_own_file`
            # compares.
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._handle).st_size
            self._end = _end_of_last_line(self._handle, size)
            self._torn = self._end != size
            self._mend()
        except OSError as error:
            raise disk_error(error, path) from error

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line.

        Raises:
            InputError: a value that is not a number, string, None, or a list or dict of those.
            DiskFull: no space is left; the file ends with the previous line, and a later `append` may succeed.
            DiskError: the operating system refuses.
            Damaged: the file was removed, replaced, or changed by another process.
        """
        line = encode(record)
        try:
            # Marked as torn before the first byte and unmarked after the last: an exception anywhere between, also one
            # of another thread's signal, leaves the mark, and the next append cuts the file back to `_end` before it
            # writes.
            self._mend()
            self._require_own_file()
            self._torn = True
            written = 0
            while written < len(line):
                # A short write is no error of write(2): on a disk that is nearly full it writes the bytes that fit.
                written += os.write(self._handle, line[written:])
            self._torn = False
            self._end += len(line)
        except OSError as error:
            # If this fails, the line stays marked as torn, and the next append or the next writer truncates it.
            with suppress(OSError):
                self._mend()
            raise disk_error(error, self.path) from error

    def sync(self) -> None:
        """Flush all lines to the disk, so that they survive a power cut.

        Raises:
            DiskFull, JobError: the operating system refuses.
        """
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def close(self) -> None:
        """Close the file. Closing it again has no effect."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _require_own_file(self) -> None:
        """Make sure that the next line joins those of this writer: lines of a deleted file are read by nobody."""
        own = os.fstat(self._handle)
        try:
            replaced = not os.path.samestat(own, os.stat(self.path))
        except MISSING:
            replaced = True
        if replaced:
            raise Damaged(f"{self.path} was removed or replaced while it was written. Run the same command again.")
        # A single writer is a promise of the locks above. If it is broken, going on would interleave two trainings of
        # one run.
        if own.st_size != self._end:
            raise Damaged(
                f"{self.path}: expected one writer, got a change by another process. Stop that process, then run the same "
                "command again."
            )

    def _mend(self) -> None:
        if self._torn:
            os.ftruncate(self._handle, self._end)
            self._torn = False


def encode(record: Mapping[str, Any]) -> bytes:
    r"""One line with its line break.

    Raises:
        InputError: a value that is not a number, string, None, or a list or dict of those.

    Example:
        >>> encode({"step": 1, "loss": math.nan})
        b'{"step":1,"loss":"NaN"}\n'
    """
    text = json.dumps(_to_json(record, "$"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return to_bytes(text + "\n")


def decode(line: bytes) -> Record:
    """Object of one line.

    Raises:
        ValueError: the line is not a JSON object.
    """
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("expected a JSON object, got another value")
    # Nearly all lines have finite numbers only; looking for the bytes first saves walking through every value of a long
    # run.
    if b'NaN"' in line or b'Infinity"' in line:
        return {name: _from_json(value) for name, value in record.items()}
    return record


def read_lines(
    path: Path, offset: int = 0, *, limit_bytes: int | None = None, decode: Callable[[bytes], Record] = decode
) -> tuple[list[Record], int]:
    """Complete lines from byte `offset` on, and the offset to continue from. A missing file has no lines.

    Args:
        path: the file, which may grow while it is read.
        offset: where an earlier read ended, or 0.
        limit_bytes: read about that many bytes at most (always at least one line, if there is one).
        decode: decodes a line; raises ValueError for a damaged one.

    Raises:
        Damaged: a complete line is not a JSON object, or the file was replaced since `offset` was returned.
        JobError: the file cannot be read.
    """
    if not starts_line(path, offset):
        raise Damaged(f"{path} was cut short, replaced or deleted: expected a line to start at byte {offset}.")
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(-1 if limit_bytes is None else limit_bytes)
            if limit_bytes is not None:
                data += file.readline()
    except MISSING:
        return [], 0
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    records: list[Record] = []
    place = offset
    # The part after the last line break is a torn line, or one that is being written: it is left for the next read.
    # Only what ends with a line break was ever complete, so only that can be damage.
    for line in data.split(b"\n")[:-1]:
        try:
            records.append(decode(line))
        except ValueError as error:
            raise Damaged(
                f"{path} is damaged at line {_line_number(path, place)} (byte {place}): {error}. "
                "Restore it from a copy, or delete the lines from there on and run again."
            ) from error
        place += len(line) + 1
    return records, place


def starts_line(path: Path, offset: int) -> bool:
    """True if a line can start at byte `offset`; false once the file was cut short, replaced by a shorter one or deleted.

    Raises:
        JobError: the file cannot be read.
    """
    if offset == 0:
        return True
    try:
        with open(path, "rb") as file:
            file.seek(offset - 1)
            return file.read(1) == b"\n"
    except MISSING:
        return False
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error


def lines_from_end(path: Path) -> Iterator[tuple[int, bytes]]:
    """Complete lines, newest first, each with the offset of its end. Reads only as much of the file as is consumed.

    Raises:
        JobError: the file cannot be read.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  closed by the `with` below; opened separately to recognise a missing file
    except MISSING:
        return
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    with file:
        start = file.seek(0, os.SEEK_END)
        rest = b""
        torn = True
        # Blocks from the end towards the start. A block begins amid a line, whose beginning is in the block before:
        # `rest` carries it over. The last piece of the whole file has no line break and is torn (or empty), so the
        # first piece of the first block is dropped; `end` follows the offsets, since a caller continues forward from
        # the end of the newest line.
        while start > 0:
            take = min(_BLOCK_BYTES, start)
            start -= take
            file.seek(start)
            first, *lines = (file.read(take) + rest).split(b"\n")
            end = start + len(first) + 1 + sum(len(line) + 1 for line in lines)
            for line in reversed(lines):
                end -= len(line) + 1
                if not torn:
                    yield end + len(line) + 1, line
                torn = False
            rest = first
        if not torn:
            yield len(rest) + 1, rest


def _end_of_last_line(handle: int, size: int) -> int:
    start = size
    while start > 0:
        take = min(_BLOCK_BYTES, start)
        start -= take
        line_break = os.pread(handle, take, start).rfind(b"\n")
        if line_break >= 0:
            return start + line_break + 1
    return 0


def _line_number(path: Path, offset: int) -> int:
    with open(path, "rb") as file:
        return file.read(offset).count(b"\n") + 1


def _to_json(value: Any, where: str) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _to_json(item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item, f"{where}[{place}]") for place, item in enumerate(value)]
    raise InputError(
        f"{where}: expected a number, a string, None, or a list or dict of those, got {type(value).__name__}. "
        "Convert a tensor with .item() or .tolist()."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {name: _from_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value


def append_locked(path: Path, lock_path: Path, record: Mapping[str, Any]) -> None:
    """Add a line, durably, after waiting for others that add theirs.

    Raises:
        InputError: the record holds a value that JSON has not.
        DiskFull, JobError: the line cannot be written.
    """
    lock = Lock(lock_path)
    for _ in range(_TRIES):
        if lock.try_acquire():
            break
        time.sleep(_PAUSE_S)  # another process is writing its line
    else:
        raise JobError(
            f"expected {lock.path} to be free within {_TRIES * _PAUSE_S:g} s, got a lock that process {lock.held_by()} "
            "still holds. Stop that process."
        )
    try:
        # Opened anew under the lock: a writer that stayed open would take the others' lines for damage by a second
        # writer.
        lines = LineWriter(path)
        try:
            lines.append(record)
            lines.sync()
        finally:
            lines.close()
    finally:
        lock.release()
