"""Lines that several processes add to one file: each is added while a lock is held."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import JobError
from addnorm.store.lines import LineWriter
from addnorm.store.lock import Lock

_TRIES, _PAUSE_S = 200, 0.01


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
