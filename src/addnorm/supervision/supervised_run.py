"""State that the supervisor holds about one run: its worker, its failures, and when it may start again.

A run that crashes is started again after a back-off of 1, 2, 4, … times the initial wait. Only consecutive crashes without
progress are counted: a run that gets further between crashes is restarted indefinitely, and one that crashes at the same
step every time is given up.
"""

import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError, JobError
from addnorm.store import RunFolder, RunStatus, State
from addnorm.supervision.executors import WorkerState

_LONGEST_WAIT_S = 60.0
_LEAST_FREE_BYTES = 16 << 20


def free_bytes(path: Path) -> int:
    """Free space on the disk that holds `path`, or its nearest folder that exists."""
    for folder in (path, *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return 0


@dataclass
class SupervisedRun:
    """One run under a supervisor."""

    folder: RunFolder
    worker: str | None = None
    """Id of the present worker, also while it waits in a scheduler's queue."""
    worker_state: WorkerState = field(default_factory=lambda: WorkerState(phase="working"))
    """The present worker's state at the last tick."""
    failures: int = 0
    """Consecutive premature exits without progress."""
    furthest: int = -1
    """Highest step that any attempt reached."""
    not_before: float = 0.0
    """Earliest next start, by the monotonic clock."""
    block: dict[str, Any] | None = None
    """Content of BLOCKED, also while the disk has no room for that file; None if the run is not blocked."""
    suspended: bool = False
    """True for a run that is not started again before the next `addnorm run`."""
    reason: str | None = None
    """Reason why the run has neither ended nor a worker."""

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    def prepare(self, again: Collection[State]) -> None:
        """Allow the run to be started: remove STOP, and the ending of a run whose state is in `again`."""
        try:
            self.folder.allow_start()
            if (self.folder.ending() or {}).get("state") in again:
                self.folder.retry()
        except JobError as error:
            self.suspend(str(error))

    def update_progress(self) -> None:
        """Read the newest step; suspend the run if its events are damaged."""
        try:
            last = self.folder.last_event()
        except JobError as damage:
            self.suspend(str(damage))
            return
        step = int(last["step"]) if last else 0
        # Progress, not time, forgives failures: a run that dies every night of memory but gets a thousand steps further
        # each time must go on, and one that dies at step 10 again and again must not, however slowly it does so.
        if step > self.furthest:
            self.furthest = step
            self.failures = 0

    def record_failure(self, reason: str, backoff_s: float) -> None:
        """Record a premature exit and set the earliest next start."""
        self.update_progress()
        self.failures += 1
        self.reason = reason
        self.not_before = time.monotonic() + min(backoff_s * 2 ** (self.failures - 1), _LONGEST_WAIT_S)

    def suspend(self, reason: str) -> None:
        """Do not start the run again before the next `addnorm run`."""
        self.suspended = True
        self.reason = reason

    def is_readable(self) -> bool:
        """True if the run's folder is there and can be read; otherwise the run is suspended, with the reason.

        A folder that was removed is not made again by the command that trained it: whoever removed it wants its room, or the
        run trained again with other settings.
        """
        try:
            # Asked before every use, because the user may remove a folder at any moment. Whatever is written then would
            # make it anew, half of it, and the next command would find a run without a past.
            if self.folder.is_removed:
                self.suspend(
                    f"the folder {self.folder.path} was removed while this command ran; the same command trains the run again, "
                    "from the start"
                )
                return False
            if not self.is_over():  # a run that is over is not started, whatever holds it
                self.folder.is_held()
        except (AddnormError, OSError) as error:
            self.suspend(str(error))
            return False
        return True

    def is_over(self) -> bool:
        """True if the run has finished, failed or diverged."""
        ending = self.folder.ending()
        return ending is not None and ending["state"] != "blocked"

    def is_startable(self) -> bool:
        """True if the run may be started, now or after its back-off (see `is_due`)."""
        if self.worker is not None or self.suspended or not self.is_readable():
            return False
        if self.folder.stop_path.exists():
            self.suspend(f"the file {self.folder.stop_path} asks it to stop")
            return False
        if self.is_over():
            return False
        return self.block is None or self.has_room()

    def is_due(self) -> bool:
        """True once the back-off after the last failure is over."""
        return time.monotonic() >= self.not_before

    def has_spec(self) -> bool:
        """True once `spec.json`, which a worker reads, is there; it is written again if it was removed or cut short."""
        try:
            self.folder.write_spec()
        except JobError as error:
            self.suspend(str(error))
            return False
        return True

    def has_room(self) -> bool:
        """True if the run is blocked by a full disk that now has room. Other causes wait for the next `addnorm run`."""
        if self.block is None or self.block.get("cause") != "disk":
            return False
        # The worker says how much the failed write needed. Without that number a start needs room for checkpoints of
        # the size that the run has written; less would block it again at its first checkpoint, after minutes of
        # training for nothing.
        need = int(self.block.get("need_bytes") or self.required_bytes())
        return free_bytes(self.folder.path) >= need

    def required_bytes(self) -> int:
        """Free space that a start needs: three checkpoints, at least 16 MiB."""
        largest = max((path.stat().st_size for path in self.folder.checkpoints_path.glob("*.pt")), default=0)
        return max(_LEAST_FREE_BYTES, 3 * largest)

    def status(self) -> RunStatus:
        """The run's status, corrected where its files lag behind: a worker that is starting, a BLOCKED that did not fit."""
        status = self.folder.status()
        if self.suspended and self.folder.is_removed:
            return replace(status, reason=self.reason)
        # The files are right about ends and wrong about beginnings: a worker that was just started holds nothing yet,
        # so its run would look queued, and BLOCKED may not have fitted on the disk. Only these states are corrected;
        # `failed` never is.
        if status.state in ("queued", "interrupted", "blocked"):
            if self.worker is not None:
                if self.worker_state.phase == "waiting":
                    state: State = "interrupted" if status.state == "interrupted" else "queued"
                    return replace(status, state=state, reason=f"{self.worker}: {self.worker_state.note}")
                return replace(status, state="running", reason=None)
            if self.block is not None:
                return replace(status, state="blocked", reason=self.block["reason"])
            if self.reason is not None:
                return replace(status, reason=self.reason)
        return status
