"""Workers as processes of this machine, each in a session of its own.

Why: it needs nothing. With a session of its own, a worker does not receive Ctrl-C from the terminal and outlives its
supervisor. Every worker has the same number of threads, because the number of threads changes the last bits of the loss.
"""

import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from addnorm.errors import InputError, JobError
from addnorm.store import RunFolder
from addnorm.store.claim import process_id
from addnorm.store.files import disk_error
from addnorm.supervision.executors import WORKER, ExecutorSpec, Work, WorkerState
from addnorm.supervision.executors._adopting import AdoptingExecutor, kill_session


@dataclass(frozen=True, kw_only=True)
class Local(ExecutorSpec):
    """One run per `training.devices` visible GPUs, or without GPUs one per `training.threads` available CPU cores for each of
    its devices, unless `at_once` is set."""


class Child:
    """A worker that this process started.

    Args:
        process: the worker.
        device: its CUDA devices; None for those that it finds.
    """

    def __init__(self, process: subprocess.Popen[bytes], device: str | None = None) -> None:
        self._process, self.device = process, device

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def state(self) -> WorkerState:
        """`working` while it is alive; afterwards with the signal or exit code that ended it."""
        code = self._process.poll()
        if code is None:
            return WorkerState(phase="working")
        return WorkerState(phase="ended", note=f"signal {-code}" if code < 0 else f"exit code {code}", code=code)

    def stop(self) -> None:
        """Ask it to save a checkpoint and end."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it and its children."""
        if self._process.poll() is None:
            kill_session(self._process.pid)


class LocalExecutor(AdoptingExecutor[Child]):
    """Processes of this machine.

    Args:
        slots: number of workers at the same time.
        threads: CPU threads of each worker.
        cuda_devices: those of each slot (as in CUDA_VISIBLE_DEVICES), or none.
        command: the worker command, to which the run's folder is appended.

    Raises:
        InputError: slots or threads below 1, or a number of devices that differs from the slots.
    """

    def __init__(
        self, slots: int, threads: int = 1, *, cuda_devices: Sequence[str] = (), command: Sequence[str] = WORKER
    ) -> None:
        super().__init__()
        if slots < 1 or threads < 1:
            raise InputError(f"executor: expected slots and threads of at least 1, got {slots} and {threads}.")
        if cuda_devices and len(cuda_devices) != slots:
            raise InputError(
                f"executor: expected one device per slot, got {len(cuda_devices)} devices for {slots} slots."
            )
        self.slots = slots
        self.threads = threads
        self.cuda_devices = tuple(cuda_devices)
        self.command = tuple(command)
        self._asked: set[Path] = set()

    @classmethod
    def of(cls, spec: ExecutorSpec, work: Work) -> "LocalExecutor":
        return cls.create(work.threads, slots=spec.at_once, command=work.command, devices=work.devices)

    @classmethod
    def obstacle(cls) -> str | None:
        return None

    @classmethod
    def create(
        cls, threads: int = 1, *, slots: int | None = None, command: Sequence[str] = WORKER, devices: int = 1
    ) -> "LocalExecutor":
        """An executor with a slot for each `devices` visible GPUs, or without GPUs for each `threads * devices` CPU cores.

        Args:
            threads: CPU threads of each worker.
            slots: number of workers at the same time; GPUs are then assigned in turn.
            command: the worker command, to which the run's folder is appended.
            devices: processes of each worker.

        Raises:
            InputError: slots or threads below 1, or more devices than this machine has.
        """
        if slots is not None and slots < 1:
            raise InputError(
                f"workers: expected a whole number of at least 1, got {slots}. Omit it for one worker per device."
            )
        import torch  # not at the top of the file: torch takes seconds to import, and only this method needs it

        gpus = torch.cuda.device_count()
        if gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",")[:gpus] if visible else [str(gpu) for gpu in range(gpus)]
            _require_devices(devices, gpus, "GPUs")
            groups = [",".join(names[first : first + devices]) for first in range(0, gpus - devices + 1, devices)]
            slots = len(groups) if slots is None else slots
            assigned = [groups[slot % len(groups)] for slot in range(slots)]
            return cls(slots, threads, cuda_devices=assigned, command=command)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if devices > 1:
            _require_devices(devices * threads, cores, f"CPU cores, {threads} for each device,")
        slots = max(1, cores // (threads * devices)) if slots is None else slots
        return cls(slots, threads, command=command)

    def start(self, runs: Sequence[RunFolder]) -> dict[str, str | JobError]:
        answers: dict[str, str | JobError] = {}
        # Adopted workers occupy slots too: they use the same cores and GPUs as those of this supervisor.
        for run in runs[: max(0, self.slots - len(self.jobs) - len(self.adopted))]:
            try:
                run.retry()  # an old BLOCKED would be taken for that of a worker that crashes at once
                worker = self.spawn(run.path, self._free_device())
            except JobError as error:
                answers[run.name] = error
            else:
                # Known before it holds anything: until it has made its claim, `find` of this process must not look for
                # it, and the slot is taken.
                self.jobs[run.path] = worker
                self._asked.discard(run.path)
                answers[run.name] = process_id(worker.pid)
        return answers

    def find(self, runs: Sequence[RunFolder]) -> dict[str, str]:
        ids = super().find(runs)
        self._asked.difference_update(run.path for run in runs if run.name in ids)
        return ids

    def stop(self, runs: Sequence[RunFolder]) -> None:
        # Once each: an interpreter on its way out has given its signal handlers back, so that a second SIGTERM would end the
        # worker by that signal, in place of the exit code that says that it has stopped in order.
        super().stop([run for run in runs if run.path not in self._asked])
        for run in runs:
            # One that is just starting cannot be reached before it has written its process id.
            worker = self.adopted[run.path] if run.path in self.adopted else self.jobs[run.path]
            if worker.pid is not None or run.stop_path.exists():
                self._asked.add(run.path)

    def _state(self, run: RunFolder, job: Child) -> WorkerState:
        return job.state()

    def _stop(self, runs: Sequence[RunFolder]) -> None:
        for run in runs:
            self.jobs[run.path].stop()

    def _kill(self, runs: Sequence[RunFolder]) -> None:
        for run in runs:
            self.jobs[run.path].kill()

    def spawn(self, run_dir: Path, device: str | None) -> Child:
        """Start the worker command for one run.

        Raises:
            JobError: the worker cannot be started.
        """
        log_path = RunFolder(run_dir).log_path
        try:
            with open(log_path, "ab") as log:
                process = subprocess.Popen(
                    [*self.command, str(run_dir.absolute())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=self._environment(device),
                )
        except OSError as error:
            raise disk_error(error, log_path) from error
        return Child(process, device)

    def _free_device(self) -> str | None:
        # With more workers than devices, each device stands there several times: the one that fewest runs use is next.
        used = Counter([job.device for job in self.jobs.values()] + [worker.device for worker in self.adopted.values()])
        return min(self.cuda_devices, key=lambda device: used[device], default=None)

    def _environment(self, device: str | None) -> dict[str, str]:
        environment = os.environ | Work(folder=Path(), threads=self.threads).environment()
        environment.pop("ADDNORM_WORKER", None)  # the supervisor may itself be a scheduler's job
        return environment if device is None else environment | {"CUDA_VISIBLE_DEVICES": device}


def _require_devices(needed: int, there: int, what: str) -> None:
    if needed > there:
        raise InputError(
            f"training.devices: expected at most the {there} {what} of this machine, got {needed}. Lower training.devices, "
            "which changes no result."
        )
