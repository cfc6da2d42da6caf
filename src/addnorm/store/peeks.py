"""Who looked at the results when: one line in `looks.jsonl` per ranking that was shown.

Why: seeds that were planned after results had been seen are not the same as seeds planned before. Only a record made at
the moment of the look can tell them apart later. A look at `addnorm status` is not recorded: it shows single runs and no
comparison.
"""

import time
from pathlib import Path

from addnorm.errors import JobError
from addnorm.store.lines import LineWriter, Record, read_lines
from addnorm.store.lock import Lock

NAME, LOCK = "looks.jsonl", "looks.lock"
_TRIES, _PAUSE_S = 200, 0.01


def record_look(out: Path, *, finished: int, plan_hash: str) -> None:
    """Add a line to the folder's `looks.jsonl`.

    Args:
        out: the study's folder.
        finished: runs whose results could be seen.
        plan_hash: of the plan as it stood.

    Raises:
        DiskFull, JobError: the line cannot be written.
    """
    lock = Lock(out / LOCK)
    for _ in range(_TRIES):
        if lock.try_acquire():
            break
        time.sleep(_PAUSE_S)  # another look is being written
    else:
        raise JobError(f"process {lock.held_by()} has held {lock.path} for too long. Stop it.")
    try:
        lines = LineWriter(out / NAME)
        try:
            lines.append({"time": time.time(), "finished": finished, "plan_hash": plan_hash})
            lines.sync()
        finally:
            lines.close()
    finally:
        lock.release()


def looks(out: Path) -> list[Record]:
    """Every recorded look, oldest first.

    Raises:
        Damaged, JobError: the file is damaged or cannot be read.
    """
    return read_lines(out / NAME)[0]
