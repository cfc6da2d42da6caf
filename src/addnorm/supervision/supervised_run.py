"""What the supervisor knows about one run, and how much patience it has with it.

A run that ends too soon is started again after 1, 2, 4, … times the back-off. What is counted are ends in a row that
got no further than any attempt before: a run that comes forward between crashes is not given up, one that dies at the
same step every time is.
"""

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from addnorm.store import Damaged, RunFolder, RunStatus
from addnorm.supervision.executors import Worker

_LONGEST_WAIT_S = 60.0
_LEAST_ROOM_BYTES = 16 << 20


def free_bytes(path: Path) -> int:
    """Free space on the disk that holds `path`."""
    return shutil.disk_usage(path).free


@dataclass
class Care:
    """One run under a supervisor."""

    run: RunFolder
    worker: Worker | None = None
    asked_to_stop: bool = False
    failures: int = 0
    """Ends in a row without getting further."""
    furthest: int = -1
    """Highest step that any attempt reached."""
    not_before: float = 0.0
    """Earliest next start, by the monotonic clock."""
    waits_for: dict[str, Any] | None = None
    """Why the run is blocked, as in BLOCKED; None if it is not."""
    aside: bool = False
    """Not to be started again before the next `addnorm run`."""
    reason: str | None = None
    """What to tell about a run that has not ended and does not run."""

    def look(self) -> None:
        """Learn how far the run is; a run whose events are damaged is set aside."""
        try:
            last = self.run.last_event()
        except Damaged as damage:
            self.set_aside(str(damage))
            return
        step = int(last["step"]) if last else 0
        if step > self.furthest:
            self.furthest = step
            self.failures = 0

    def fail(self, reason: str, backoff_s: float) -> None:
        """Count an end that was none."""
        self.look()
        self.failures += 1
        self.reason = reason
        self.not_before = time.monotonic() + min(backoff_s * 2 ** (self.failures - 1), _LONGEST_WAIT_S)

    def set_aside(self, reason: str) -> None:
        """Leave the run until the next `addnorm run`."""
        self.aside = True
        self.reason = reason

    def is_startable(self) -> bool:
        """Whether the run may be started, perhaps only after a wait: see `is_due`."""
        if self.worker is not None or self.aside:
            return False
        ending = self.run.ending()
        if ending is not None and ending["state"] != "blocked":
            return False
        return self.waits_for is None or self.has_room()

    def is_due(self) -> bool:
        """Whether the wait after the last end is over."""
        return time.monotonic() >= self.not_before

    def has_room(self) -> bool:
        """Whether the cause of a full disk seems to be gone. Other causes are looked at by the next `addnorm run`."""
        if self.waits_for is None or self.waits_for.get("cause") != "disk":
            return False
        need = int(self.waits_for.get("need_bytes") or self.room_bytes())
        return free_bytes(self.run.path) >= need

    def room_bytes(self) -> int:
        """Free space without which it is of no use to start the run: three checkpoints, and never less than 16 MiB."""
        largest = max((path.stat().st_size for path in self.run.checkpoints_path.glob("*.pt")), default=0)
        return max(_LEAST_ROOM_BYTES, 3 * largest)

    def status(self) -> RunStatus:
        """The run's status, with what its files do not say yet: a worker that is starting, a block that did not fit."""
        status = self.run.status()
        if status.state in ("queued", "interrupted", "blocked"):
            if self.worker is not None:
                return replace(status, state="running", reason=None)
            if self.waits_for is not None:
                return replace(status, state="blocked", reason=self.waits_for["reason"])
            if self.reason is not None:
                return replace(status, reason=self.reason)
        return status
