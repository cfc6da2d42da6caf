"""Events of a run, in the order in which they were written.

Each line of `events.jsonl` is one object with `time` (wall clock, seconds since 1970), `attempt` (1, 2, …), `type`, `step`
and the values of the event. The order is the position in the file: nothing depends on `time`, so changes of the clock have
no effect. NaN and infinities are preserved (see `lines`).
"""

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.store.lines import LineWriter, Record, decode, read_lines

Event = Record

_OWN = ("time", "attempt", "type", "step")


class EventWriter:
    """Writer of a run's events, used by the process that holds the run's lock.

    Args:
        path: the `events.jsonl`; created if missing. A torn last line is truncated.
        attempt: number of this attempt, from 1.
        clock: returns seconds since 1970; replaced by tests only.

    Raises:
        DiskFull, JobError: the file cannot be opened or written.
    """

    def __init__(self, path: Path, *, attempt: int, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.attempt = attempt
        self._clock = clock
        self._lines = LineWriter(path)

    def write(self, type: str, /, *, step: int, **values: Any) -> None:
        """Add one event. It survives kill -9 as soon as this returns.

        Raises:
            InputError: a value has a reserved name, or is not a number, string, None, or a list or dict of those.
            DiskFull: no space is left; no partial line is written, and a later write may succeed.
        """
        taken = [name for name in _OWN if name in values]
        if taken:
            raise InputError(
                f"event {type!r}: expected values with names of their own, got {taken[0]!r}, which every event has."
            )
        # `type_mark` relies on the type being written as a value of its own, unescaped.
        self._lines.append({"time": self._clock(), "attempt": self.attempt, "type": type, "step": step, **values})

    def sync(self) -> None:
        """Flush all events to the disk, so that they survive a power cut. Call it before a checkpoint is renamed into place."""
        self._lines.sync()

    def close(self) -> None:
        """Close the file. Closing it again has no effect."""
        self._lines.close()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_events(
    path: Path, offset: int = 0, *, limit_bytes: int | None = None, types: Collection[str] | None = None
) -> tuple[list[Event], int]:
    """Events from byte `offset` on, and the offset to continue from. A torn last line is left for the next read.

    Args:
        path: the `events.jsonl`; a missing file has no events.
        offset: where an earlier read ended, or 0.
        limit_bytes: read about that many bytes at most (always at least one event, if there is one).
        types: event types to return; all if not given. Lines of other types are skipped without being decoded.

    Raises:
        Damaged: a line is not an event, or the file was replaced since `offset` was returned.
        JobError: the file cannot be read.
    """
    if types is None:
        return read_lines(path, offset, limit_bytes=limit_bytes, decode=decode_event)
    marks = [type_mark(kind) for kind in types]

    def decode_wanted(line: bytes) -> Event:
        return decode_event(line) if any(mark in line for mark in marks) else {}

    events, reached = read_lines(path, offset, limit_bytes=limit_bytes, decode=decode_wanted)
    return [event for event in events if event and event["type"] in types], reached


def first_event(path: Path) -> Event | None:
    """Oldest event; None for a missing or empty file.

    Raises:
        Damaged, JobError: the first line is not an event, or the file cannot be read.
    """
    events, _ = read_events(path, limit_bytes=1)
    return events[0] if events else None


def type_mark(kind: str) -> bytes:
    """Bytes that the line of every event of that type contains, for skipping other lines without decoding them."""
    return f'"type":{json.dumps(kind)}'.encode()


def decode_event(line: bytes) -> Event:
    """Event of one line.

    Raises:
        ValueError: the line is not an event.
    """
    event = decode(line)
    if not (
        isinstance(event.get("attempt"), int)
        and isinstance(event.get("type"), str)
        and isinstance(event.get("step"), int)
    ):
        raise ValueError("expected an event with attempt, type and step")
    return event
