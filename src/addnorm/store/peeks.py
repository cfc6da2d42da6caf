"""Record of who saw results and when: one line in `looks.jsonl` for each ranking that was shown.

Why: adding seeds after results have been seen makes false claims more likely than adding them before (`rank` warns of it),
and only a record made at the moment of the peek can tell the two apart later. `addnorm status` is not recorded, because it
shows single runs and no comparison.
"""

import time
from pathlib import Path

from addnorm.errors import JobError
from addnorm.store.lines import LineWriter, Record, read_lines
from addnorm.store.lock import Lock

NAME, LOCK = "looks.jsonl", "looks.lock"
_TRIES, _PAUSE_S = 200, 0.01


def record_peek(out: Path, *, finished: int, plan_hash: str) -> None:
    """Add a line to the folder's `looks.jsonl`.

    Args:
        out: the study's folder.
        finished: number of runs whose results were shown.
        plan_hash: hash of the plan at that moment.

    Raises:
        DiskFull, JobError: the line cannot be written.
    """
    lock = Lock(out / LOCK)
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
        lines = LineWriter(out / NAME)
        try:
            lines.append({"time": time.time(), "finished": finished, "plan_hash": plan_hash})
            lines.sync()
        finally:
            lines.close()
    finally:
        lock.release()


def peeks(out: Path) -> list[Record]:
    """Every recorded peek, oldest first.

    Raises:
        Damaged, JobError: the file is damaged or cannot be read.
    """
    return read_lines(out / NAME)[0]
