"""The exit codes of the worker command."""

from enum import IntEnum

from addnorm.store import State


class ExitCode(IntEnum):
    """What a worker's exit code says. Any other, and death by a signal, is a crash."""

    DONE = 0
    """`DONE` is written, or was there before."""
    FAILED = 1
    """The run cannot succeed; `FAILED` is written. Without that file it is a crash: Python's own errors exit 1 too."""
    BLOCKED = 74
    """Something outside the run is in the way (a full disk); `BLOCKED` is written if there was room for it."""
    STOPPED = 75
    """The worker was asked to stop and kept a checkpoint, or found another worker in its place."""

    @classmethod
    def of(cls, state: State) -> "ExitCode":
        """The code with which a worker leaves a run that is in this state."""
        return {"finished": cls.DONE, "failed": cls.FAILED, "diverged": cls.FAILED, "blocked": cls.BLOCKED}.get(
            state, cls.STOPPED
        )
