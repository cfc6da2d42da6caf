"""The exit codes of the worker command."""

from enum import IntEnum

from addnorm.store import State


class ExitCode(IntEnum):
    """Exit codes of a worker. Any other code, and the end by a signal, is a crash."""

    DONE = 0
    """The run has finished, now or before."""
    FAILED = 1
    """The run has failed or diverged; FAILED is written. Without that file it is a crash, as Python's errors exit 1 too."""
    BLOCKED = 74
    """The run cannot continue for a reason outside it (a disk that refuses, missing data); BLOCKED is written if that is
    possible. Also if the run's folder was removed."""
    STOPPED = 75
    """The worker was asked to stop and saved a checkpoint, or another worker already holds the run."""

    @classmethod
    def of(cls, state: State) -> "ExitCode":
        """The exit code of a worker whose run is in a state."""
        return {"finished": cls.DONE, "failed": cls.FAILED, "diverged": cls.FAILED, "blocked": cls.BLOCKED}.get(
            state, cls.STOPPED
        )
