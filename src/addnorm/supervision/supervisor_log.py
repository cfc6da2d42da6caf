"""The supervisor's log, `supervisor.jsonl`: the attempts that it started and how each ended."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from addnorm.store import DiskFull
from addnorm.store.lines import LineWriter, Record


class SupervisorLog:
    """Append-only log with one JSON object per line: `time`, `supervisor` (process id), `type` and further values.

    Entries that do not fit on a full disk are kept in memory and written, in order, as soon as there is room.

    Raises:
        DiskFull, JobError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._lines = LineWriter(path)
        self._pending: list[Record] = []

    def write(self, type: str, /, **values: Any) -> None:
        """Append one entry."""
        self._pending.append({"time": time.time(), "supervisor": os.getpid(), "type": type, **values})
        try:
            while self._pending:
                self._lines.append(self._pending[0])
                del self._pending[0]
        except DiskFull:
            pass  # retried with the next entry; a full disk must not end the supervisor

    def __enter__(self) -> "SupervisorLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
