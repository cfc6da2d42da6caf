"""Where workers run. An executor starts the one worker command and sees it end; it knows nothing of studies.

    python -m addnorm.training.worker RUN_DIR

All that a worker knows is in the run's folder, so any executor can go on with what another began.
"""

from abc import ABC, abstractmethod
from pathlib import Path


class Worker(ABC):
    """A worker that was started or found alive."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Process id, where it has one that is known."""

    @abstractmethod
    def poll(self) -> str | None:
        """None while it lives; afterwards how it ended, in words that go into the log (`exit code 0`, `signal 9`)."""

    @property
    @abstractmethod
    def code(self) -> int | None:
        """Exit code after the end, -N after death by signal N; None while it lives or where it cannot be had."""

    @abstractmethod
    def stop(self) -> None:
        """Ask it to finish the present step, keep a checkpoint and exit with `ExitCode.STOPPED`. Returns at once."""

    @abstractmethod
    def kill(self) -> None:
        """End it and its children now. Returns at once."""


class Executor(ABC):
    """Starts workers."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many workers may live at once."""

    @abstractmethod
    def start(self, run_dir: Path) -> Worker:
        """Start the worker command for a run. There must be a free slot.

        Raises:
            JobError: it cannot be started.
        """

    @abstractmethod
    def adopt(self, run_dir: Path) -> Worker:
        """Look after a living worker that another executor started; it takes up a slot."""
