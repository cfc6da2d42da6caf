"""Room of the executors: where workers run. One file each.

An executor has the worker command started for a run's folder, on this machine or by a scheduler on another:

    python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR

A file holds two classes: a spec with the settings that a study file and `--executor.FIELD` may give, and an `Executor`. The
state of a run is in its folder, so any executor can resume a run that another one started, and whatever a scheduler answers
is a hint: a run that is neither done nor known to it is started again.

Example: an executor that trains each run before `start` returns

    @dataclass(frozen=True, kw_only=True)
    class Here(ExecutorSpec):
        pass

    class HereExecutor(Executor):
        ...
        def start(self, runs):
            return {run.name: self.train(run) for run in runs[:1]}
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from addnorm.catalogue import ROOMS, Siblings
from addnorm.errors import InputError, JobError
from addnorm.store import RunFolder
from addnorm.study.executor import ExecutorSpec

__all__ = ["EXECUTORS", "THREADS", "WORKER", "Executor", "ExecutorSpec", "Work", "WorkerState"]

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Environment variables that set the number of a worker's threads."""

WORKER = (sys.executable, "-m", "addnorm.training.worker")
"""The worker command; the paths of plugins and the run's folder are appended."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Facts of a study that an executor needs."""

    folder: Path
    """The study's folder."""
    threads: int = 1
    """CPU threads of each process of a worker."""
    devices: int = 1
    """Processes of each worker, which train one run together, each with a GPU or with its threads."""
    command: Sequence[str] = WORKER
    """The worker command, to which the run's folder is appended."""

    def environment(self) -> dict[str, str]:
        """Variables that every worker gets, wherever it runs. The number of threads changes the last bits of the loss."""
        return {**dict.fromkeys(THREADS, str(self.threads)), "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}

    @property
    def cores(self) -> int:
        """CPU cores that all processes of one worker use."""
        return self.threads * self.devices

    def require_gpus(self, gpus: float, of: str) -> None:
        """Refuse runs on more devices than their workers get GPUs; without any, they are trained on cores.

        Args:
            gpus: number of GPUs, or a fraction of one.
            of: the unit that gets them: "job", "run".

        Raises:
            InputError: there are fewer.
        """
        if gpus and self.devices > max(1.0, gpus):
            raise InputError(
                f"training.devices: expected at most the GPUs of a {of}, {gpus:g}, got {self.devices}. Raise executor.gpus."
            )


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """State of a worker, as its executor knows it."""

    phase: Literal["waiting", "working", "ended"]
    """`waiting` in a scheduler's queue, `working` once started."""
    note: str = ""
    """The reason why it waits (`PENDING, Resources`), or how it ended (`exit code 0`, `signal 9`)."""
    code: int | None = None
    """Exit code after the end, -N after signal N; None if it is not known."""


class Executor(ABC):
    """Starts workers, finds those that are at work, and stops them. At most one worker of a run is known at a time.

    Nothing here waits for a worker. A worker's id is a text that its claim records.
    """

    @classmethod
    @abstractmethod
    def of(cls, spec: Any, work: Work) -> "Executor":
        """An executor with the given settings.

        Raises:
            InputError: it cannot be used here, or the settings are wrong. Nothing has been started or submitted.
        """

    @classmethod
    @abstractmethod
    def obstacle(cls) -> str | None:
        """The reason why it cannot be used on this machine; None if it can."""

    @classmethod
    def script(cls, spec: Any, work: Work, runs: int) -> str:
        """The script that would be submitted for that many runs.

        Raises:
            InputError: this executor submits none.
        """
        raise InputError(f"executor: expected one that submits a script, got {spec.kind!r}. Leave out --dry-run.")

    @abstractmethod
    def start(self, runs: Sequence[RunFolder]) -> Mapping[str, str | JobError]:
        """Start workers, in the order of the runs, for as many as there is room for.

        Returns:
            By the names of the runs that were taken on: the worker's id, or why it could not be started.
        """

    @abstractmethod
    def find(self, runs: Sequence[RunFolder]) -> Mapping[str, str]:
        """Take over the living workers of runs whose workers are not known, because another supervisor started them.

        Returns:
            The workers' ids by the names of their runs.
        """

    @abstractmethod
    def poll(self, runs: Sequence[RunFolder]) -> Mapping[str, WorkerState]:
        """States of the workers of these runs, by the runs' names. One that has ended is no longer known."""

    @abstractmethod
    def stop(self, runs: Sequence[RunFolder]) -> None:
        """Ask the workers of these runs to finish their step, save a checkpoint and end. May be called again."""

    @abstractmethod
    def kill(self, runs: Sequence[RunFolder]) -> None:
        """End the workers of these runs at once."""


class _Executors(Siblings):
    """The executors by the kinds of their specs, those of plugins included."""

    def kinds(self) -> tuple[str, ...]:
        return ROOMS["executor"].kinds()

    def _module(self, kind: str) -> ModuleType:
        return ROOMS["executor"].module_of(kind)


EXECUTORS = _Executors("executor", "addnorm.supervision.executors", "Executor")
"""The executors by file name."""
