"""The supervisor's own log: which attempts it started, and how each ended."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from addnorm.store import DiskFull
from addnorm.store.lines import LineWriter, Record


class Journal:
    """Append-only, one JSON object per line with `time`, `supervisor` (process id) and `type`.

    Notes that find no room on the disk are kept and written, in order, as soon as there is some.

    Raises:
        DiskFull, JobError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._lines = LineWriter(path)
        self._waiting: list[Record] = []

    def note(self, type: str, /, **values: Any) -> None:
        """Add one line."""
        self._waiting.append({"time": time.time(), "supervisor": os.getpid(), "type": type, **values})
        try:
            while self._waiting:
                self._lines.append(self._waiting[0])
                del self._waiting[0]
        except DiskFull:
            pass  # tried again with the next note; a full disk must not end the supervisor

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
