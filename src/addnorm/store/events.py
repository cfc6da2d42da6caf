"""A run's events: what happened, in the order in which it was written.

Each line of `events.jsonl` is one object with `time` (seconds since 1970 by the wall clock), `attempt` (1, 2, …),
`type`, `step`, and the event's own values. The order is the position in the file; nothing depends on `time`, so a
clock that jumps does no harm. NaN and infinities survive (see `lines`).
"""

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any

from addnorm.errors import InputError
from addnorm.store.lines import LineWriter, Record, decode, read_lines

Event = Record

_OWN = ("time", "attempt", "type", "step")


class EventWriter:
    """The one writer of a run's events; the holder of the run's lock.

    Args:
        path: the `events.jsonl`; made if missing; a torn last line is cut off.
        attempt: number of this attempt, from 1.
        clock: seconds since 1970; only to be set by tests.

    Raises:
        DiskFull, JobError: the file cannot be opened or written.
    """

    def __init__(self, path: Path, *, attempt: int, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.attempt = attempt
        self._clock = clock
        self._lines = LineWriter(path)

    def write(self, type: str, /, *, step: int, **values: Any) -> None:
        """Add one event; it survives kill -9 as soon as this returns.

        Raises:
            InputError: a value has one of our own names, or is not a number, text, None, or a list or dict of those.
            DiskFull: no room; no half line is left, and a later write may succeed.
        """
        taken = [name for name in _OWN if name in values]
        if taken:
            raise InputError(f"an event's value must not be called {taken[0]!r}: every event has that already.")
        # `type_mark` relies on the type being written as a value of its own, unescaped.
        self._lines.append({"time": self._clock(), "attempt": self.attempt, "type": type, "step": step, **values})

    def sync(self) -> None:
        """Make every event survive a power cut too. To be called before a checkpoint is renamed into place."""
        self._lines.sync()

    def close(self) -> None:
        """Close the file; nothing happens if it is closed."""
        self._lines.close()

    def __enter__(self) -> "EventWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(
    path: Path, offset: int = 0, *, limit_bytes: int | None = None, types: Collection[str] | None = None
) -> tuple[list[Event], int]:
    """The events from byte `offset` on, and the offset to continue from. A torn last line is left for later.

    Args:
        path: the `events.jsonl`; a missing file has no events.
        offset: where an earlier read ended, or 0.
        limit_bytes: read about that many bytes at most (always at least one event, if there is one).
        types: event types to return; all if not given. Lines of other types are skipped without being decoded.

    Raises:
        Damaged: a line is not an event, or the file was replaced since `offset` was given.
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
    """The oldest event; None for a missing or empty file.

    Raises:
        Damaged, JobError: the first line is not an event, or the file cannot be read.
    """
    events, _ = read_events(path, limit_bytes=1)
    return events[0] if events else None


def type_mark(kind: str) -> bytes:
    """Bytes that the line of every event of that type contains, for skipping other lines without decoding them."""
    return f'"type":{json.dumps(kind)}'.encode()


def decode_event(line: bytes) -> Event:
    """The event in a line.

    Raises:
        ValueError: the line is not an event.
    """
    event = decode(line)
    if not (
        isinstance(event.get("attempt"), int)
        and isinstance(event.get("type"), str)
        and isinstance(event.get("step"), int)
    ):
        raise ValueError("not an event: it lacks attempt, type or step")
    return event
