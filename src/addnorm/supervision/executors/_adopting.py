"""The shape that the executors share: workers that they started, and workers that they found at work.

A supervisor may die and its workers go on. The next one finds them in two ways: its scheduler lists a job of the run, or the
run's claim is in force although no job is known. The second kind may have been started by another executor, or by hand.
"""

import os
import signal
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from addnorm.store import RunFolder
from addnorm.supervision.executors import Executor, WorkerState
from addnorm.training.exit_code import ExitCode

Job = TypeVar("Job")
"""Facts that an executor keeps about a worker that it started or that its scheduler lists."""


class AdoptedWorker:
    """A living worker of a run, here or on another host: alive while its claim is in force; its exit code is unknown."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        holder = run.holder()
        self.id = holder.worker if holder is not None else f"process {self.pid}"
        self.device = _device_of(self.pid)
        """The CUDA devices that it was given; None if that cannot be read."""

    @property
    def pid(self) -> int | None:
        """Process id; None on another host, or if it is not known yet."""
        return self._run.worker()

    def state(self) -> WorkerState:
        """`working` while its claim is in force."""
        if self._run.is_held():
            return WorkerState(phase="working")
        return WorkerState(phase="ended", note="its claim has lapsed")

    def stop(self) -> None:
        """Ask it to save a checkpoint and end: by a signal here, by the file STOP elsewhere."""
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        elif self._run.is_held():
            self._run.request_stop()

    def kill(self) -> None:
        """Kill it here; elsewhere, where no signal reaches, ask it to stop."""
        pid = self.pid
        if pid is not None:
            kill_session(pid)
        elif self._run.is_held():
            self._run.request_stop()


class AdoptingExecutor(Executor, Generic[Job]):
    """An executor that keeps what it knows about its workers by the paths of their runs.

    Every run that has a worker is in exactly one of the two tables until `poll` reports the worker's end. The order matters
    in `find`: a scheduler's job comes first and the claim second, because a job that works also holds the claim; taken for an
    adopted worker, it could no longer be cancelled, and its exit code would be lost.
    """

    def __init__(self) -> None:
        self.jobs: dict[Path, Job] = {}
        self.adopted: dict[Path, AdoptedWorker] = {}

    def find(self, runs: Sequence[RunFolder]) -> dict[str, str]:
        unknown = {run.name: run for run in runs if run.path not in self.jobs and run.path not in self.adopted}
        if not unknown:
            return {}
        ids = self._find_jobs(unknown)
        for name, run in unknown.items():
            if name not in ids and run.is_held():
                self.adopted[run.path] = AdoptedWorker(run)
                ids[name] = self.adopted[run.path].id
        return ids

    def poll(self, runs: Sequence[RunFolder]) -> dict[str, WorkerState]:
        self._look(runs)
        states = {}
        for run in runs:
            adopted = self.adopted.get(run.path)
            state = self._state(run, self.jobs[run.path]) if adopted is None else adopted.state()
            if state.phase == "ended":
                self.jobs.pop(run.path, None)
                self.adopted.pop(run.path, None)
            states[run.name] = state
        return states

    def stop(self, runs: Sequence[RunFolder]) -> None:
        for run in runs:
            if run.path in self.adopted:
                self.adopted[run.path].stop()
        self._stop([run for run in runs if run.path not in self.adopted])

    def kill(self, runs: Sequence[RunFolder]) -> None:
        for run in runs:
            if run.path in self.adopted:
                self.adopted[run.path].kill()
        self._kill([run for run in runs if run.path not in self.adopted])

    def _find_jobs(self, runs: Mapping[str, RunFolder]) -> dict[str, str]:
        """Take over the scheduler's jobs of runs, by the runs' names. Returns the ids of those that there are."""
        return {}

    def _look(self, runs: Sequence[RunFolder]) -> None:
        """Ask the scheduler once, before the states of these runs are read."""

    @abstractmethod
    def _state(self, run: RunFolder, job: Job) -> WorkerState:
        """State of a worker that is not adopted."""

    @abstractmethod
    def _stop(self, runs: Sequence[RunFolder]) -> None:
        """Stop workers that are not adopted, see `stop`."""

    @abstractmethod
    def _kill(self, runs: Sequence[RunFolder]) -> None:
        """End workers that are not adopted, see `kill`."""


def recorded_code(path: Path, run: RunFolder, claims: int) -> int | None:
    """The exit code that a worker's node has written; without one, None, or that of a stop if no worker ever began.

    A run whose number of claims has not grown was not touched: its job was cancelled, or its node died before. That is no
    crash, and a supervisor that counted it as one would give up runs that never ran.

    Args:
        path: file with the code.
        run: the run.
        claims: claims of the run before this worker was started.
    """
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None if run.claims_made() > claims else int(ExitCode.STOPPED)


def request_stops(runs: Sequence[RunFolder]) -> None:
    """Leave the file STOP in every run, before any job is cancelled: a job that begins in between ends at once."""
    for run in runs:
        if not run.stop_path.exists():
            run.request_stop()


def kill_session(pid: int) -> None:
    """Kill a worker and its children."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:  # started by hand, in a process group with other processes
            os.kill(pid, signal.SIGKILL)


def _device_of(pid: int | None) -> str | None:
    """The CUDA devices assigned to a living process; None if it has none or /proc is not readable."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"CUDA_VISIBLE_DEVICES":
                return value.decode(errors="replace")
    return None
