"""The supervisor's log, `supervisor.jsonl`: the attempts that it started and how each ended."""

import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from addnorm.errors import JobError
from addnorm.store import Damaged
from addnorm.store.lines import LineWriter, Record


class SupervisorLog:
    """Append-only log with one JSON object per line: `time`, `supervisor` (process id), `type` and further values.

    Entries that cannot be written, as on a full disk, are kept in memory and written, in order, as soon as that is possible.
    If the file was removed or changed, a new writer continues what is there.

    Raises:
        DiskError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineWriter(path)
        self._pending: list[Record] = []

    def write(self, type: str, /, **values: Any) -> None:
        """Append one entry."""
        self._pending.append({"time": time.time(), "supervisor": os.getpid(), "type": type, **values})
        try:
            self._write_pending()
        except Damaged:
            with suppress(JobError):
                lines = LineWriter(self._path)
                self._lines.close()
                self._lines = lines
                self._write_pending()
        except JobError:
            pass  # retried with the next entry; nothing about the log may end the supervisor

    def _write_pending(self) -> None:
        while self._pending:
            self._lines.append(self._pending[0])
            del self._pending[0]

    def __enter__(self) -> "SupervisorLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
