"""Record of who saw results and when: one line in `looks.jsonl` for each ranking that was shown.

Why: adding seeds after results have been seen makes false claims more likely than adding them before (`rank` warns of it),
and only a record made at the moment of the peek can tell the two apart later. `addnorm status` is not recorded, because it
shows single runs and no comparison.
"""

import time
from pathlib import Path

from addnorm.store.lines import Record, append_locked, read_lines

NAME, LOCK = "looks.jsonl", "looks.lock"


def record_peek(out: Path, *, finished: int, plan_hash: str) -> None:
    """Add a line to the folder's `looks.jsonl`.

    Args:
        out: the study's folder.
        finished: number of runs whose results were shown.
        plan_hash: hash of the plan at that moment.

    Raises:
        DiskFull, JobError: the line cannot be written.
    """
    record = {"time": time.time(), "finished": finished, "plan_hash": plan_hash}
    append_locked(out / NAME, out / LOCK, record)


def peeks(out: Path) -> list[Record]:
    """Every recorded peek, oldest first.

    Raises:
        Damaged, JobError: the file is damaged or cannot be read.
    """
    return read_lines(out / NAME)[0]
