"""Room of the executors: where workers run. One file each.

An executor starts the worker command for a run's folder, observes the end of the process, and stops it on request:

    python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR

The state of a run is in its folder, so any executor can resume a run that another one started.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from addnorm.catalogue import Siblings

EXECUTORS = Siblings("executor", "addnorm.supervision.executors", "Executor")
"""The executors by file name."""

WORKER = (sys.executable, "-m", "addnorm.training.worker")
"""The worker command; the paths of plugins and the run's folder are appended."""


class Worker(ABC):
    """A worker process that was started or adopted."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Process id; None if it is not known."""

    @abstractmethod
    def poll(self) -> str | None:
        """None while the worker is alive; afterwards its outcome for the log (`exit code 0`, `signal 9`)."""

    @property
    @abstractmethod
    def code(self) -> int | None:
        """Exit code after the end, -N after signal N; None while the worker is alive or if the code is not known."""

    @abstractmethod
    def stop(self) -> None:
        """Ask the worker to finish its step, write a checkpoint and exit with `ExitCode.STOPPED`. Returns at once."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the worker and its children. Returns at once."""


class Executor(ABC):
    """Starts and adopts workers."""

    @classmethod
    @abstractmethod
    def create(cls, threads: int = 1, *, slots: int | None = None, command: Sequence[str] = WORKER) -> "Executor":
        """An executor for the resources that are available.

        Args:
            threads: CPU threads of each worker.
            slots: number of workers at the same time; None for as many as the resources allow.
            command: the worker command, to which the run's folder is appended.

        Raises:
            InputError: threads or slots below 1.
        """

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of workers that may be alive at the same time."""

    @abstractmethod
    def start(self, run_dir: Path) -> Worker:
        """Start a worker for a run. The caller makes sure that a slot is free.

        Raises:
            JobError: the worker cannot be started.
        """

    @abstractmethod
    def adopt(self, run_dir: Path) -> Worker:
        """Take over a living worker that another supervisor started; it occupies a slot."""
