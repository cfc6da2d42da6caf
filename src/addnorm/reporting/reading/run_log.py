"""A run's log and events as a page shows them: their end, an earlier part, or what contains some words.

A log may be large, so its end is read backwards and a search streams through it. Line ends of progress bars (`\\r`) count as
line ends, and control characters are left out.
"""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.reporting.formats.listing import matches
from addnorm.store.lines import decode, lines_from_end

SHOWN_BYTES = 48 * 1024
"""Of the log's end that a page shows."""
MOST_LINES, MOST_EVENTS = 500, 100
"""Lines, and events, that a page shows."""
_CONTROL = {code: None for code in range(32) if chr(code) not in "\t\n"} | {127: None}
_LONGEST = 2000


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """Part of a log."""

    lines: tuple[str, ...]
    first: int
    """Byte at which it begins; 0 for the log's start. Of a search: 0."""
    last: int
    """Byte at which it ends."""
    size: int
    """Of the whole log in bytes."""
    matches: int | None
    """Lines that contain the words; None without a search."""


@dataclass(frozen=True, kw_only=True)
class LoggedEvent:
    """One event, its numbers as text."""

    time: float | None
    attempt: Any
    type: str
    step: Any
    values: str


def log_end(path: Path, until: int | None = None) -> LogPart:
    """The end of a log, or the part before a byte. A missing file is an empty log."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            last = size if until is None else min(until, size)
            first = max(0, last - SHOWN_BYTES)
            file.seek(first)
            content = file.read(last - first)
    except OSError:
        return LogPart(lines=(), first=0, last=0, size=0, matches=None)
    # The cut falls anywhere, also inside a letter of several bytes; from the next line's start on, everything
    # decodes.
    if first > 0:  # to the next line's start
        cut = content.find(b"\n") + 1
        content, first = content[cut:], first + cut
    return LogPart(lines=_lines(content), first=first, last=last, size=size, matches=None)


def log_search(path: Path, query: str) -> LogPart:
    """The newest lines of a log that contain the words."""
    newest: deque[str] = deque(maxlen=MOST_LINES)
    count = size = 0
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            for number, raw in enumerate(file, start=1):
                for line in _lines(raw):
                    if matches(query, line):
                        count += 1
                        newest.append(f"{number}: {line}")
    except OSError:
        pass  # no worker has started yet
    return LogPart(lines=tuple(newest), first=0, last=size, size=size, matches=count)


def newest_events(path: Path, query: str = "") -> tuple[LoggedEvent, ...]:
    """The newest events whose text contains the words, newest first."""
    newest: list[LoggedEvent] = []
    try:
        for _, line in lines_from_end(path):
            if query and not matches(query, line.decode("utf-8", "replace")):
                continue
            newest.append(_event(line))
            if len(newest) == MOST_EVENTS:
                break
    except OSError:
        pass  # deleted meanwhile
    return tuple(newest)


def _event(line: bytes) -> LoggedEvent:
    try:
        event = decode(line)
    except ValueError:
        return LoggedEvent(time=None, attempt="–", type="?", step="–", values=_clean(line.decode("utf-8", "replace")))
    rest = {name: value for name, value in event.items() if name not in ("time", "attempt", "type", "step")}
    return LoggedEvent(
        time=event.get("time"),
        attempt=event.get("attempt", "–"),
        type=str(event.get("type", "?")),
        step=event.get("step", "–"),
        values=" · ".join(f"{name} {_short(value)}" for name, value in rest.items()),
    )


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items())
    return _clean(value if isinstance(value, str) else json.dumps(value))


def _lines(content: bytes) -> tuple[str, ...]:
    texts: Sequence[str] = content.decode("utf-8", "replace").replace("\r", "\n").split("\n")
    return tuple(_clean(line) for line in texts if line.strip())


def _clean(text: str) -> str:
    return text.translate(_CONTROL)[:_LONGEST]
