"""Workers as processes of this machine, each in a session of its own.

Own session: Ctrl-C in the terminal reaches the supervisor alone, and a supervisor that dies takes no worker with it.
Threads are pinned alike for all runs, because another number of threads gives other bits of the loss.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from addnorm.errors import InputError
from addnorm.store import RunFolder
from addnorm.store.files import disk_error
from addnorm.supervision.executors import Executor, Worker

WORKER = (sys.executable, "-m", "addnorm.training.worker")

_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)


class LocalExecutor(Executor):
    """Processes of this machine.

    Args:
        slots: workers at once.
        threads: CPU threads of each worker.
        devices: one CUDA device (as in CUDA_VISIBLE_DEVICES) per slot, or none at all.
        command: the worker command, to which the run's folder is added; only to be set by tests.

    Raises:
        InputError: a number below 1, or not as many devices as slots.
    """

    def __init__(
        self, slots: int, threads: int = 1, *, devices: Sequence[str] = (), command: Sequence[str] = WORKER
    ) -> None:
        if slots < 1 or threads < 1:
            raise InputError(f"slots and threads must be at least 1, got slots {slots} and threads {threads}.")
        if devices and len(devices) != slots:
            raise InputError(f"there must be one device per slot, got {len(devices)} devices for {slots} slots.")
        self._slots = slots
        self.threads = threads
        self.devices = tuple(devices)
        self.command = tuple(command)
        self._living: list[tuple[Worker, str | None]] = []

    @classmethod
    def of_this_machine(
        cls, threads: int = 1, *, slots: int | None = None, command: Sequence[str] = WORKER
    ) -> "LocalExecutor":
        """One slot per GPU that this process may use, else one per `threads` CPU cores that it may use.

        Args:
            threads: CPU threads of each worker.
            slots: another number of workers at once; GPUs are then given out in turn.
            command: the worker command, to which the run's folder is added.

        Raises:
            InputError: slots or threads below 1.
        """
        if slots is not None and slots < 1:
            raise InputError(
                f"workers must be a whole number of at least 1, got {slots}. Leave it out for one per device."
            )
        import torch  # here, because a supervisor needs it for nothing else

        gpus = torch.cuda.device_count()
        if gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            devices = visible.split(",")[:gpus] if visible else [str(gpu) for gpu in range(gpus)]
            slots = gpus if slots is None else slots
            return cls(slots, threads, devices=[devices[slot % gpus] for slot in range(slots)], command=command)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(max(1, cores // threads) if slots is None else slots, threads, command=command)

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, run_dir: Path) -> Worker:
        device = self._free_device()
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
        worker = Child(process)
        self._living.append((worker, device))
        return worker

    def adopt(self, run_dir: Path) -> Worker:
        worker = Adopted(RunFolder(run_dir))
        self._living.append((worker, _device_of(worker.pid)))
        return worker

    def _free_device(self) -> str | None:
        self._living = [(worker, device) for worker, device in self._living if worker.poll() is None]
        taken = {device for _, device in self._living}
        return next((device for device in self.devices if device not in taken), None)

    def _environment(self, device: str | None) -> dict[str, str]:
        environment = os.environ | dict.fromkeys(_THREADS, str(self.threads))
        environment |= {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        return environment if device is None else environment | {"CUDA_VISIBLE_DEVICES": device}


class Child(Worker):
    """A process that this one started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.returncode

    def poll(self) -> str | None:
        code = self._process.poll()
        return None if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"

    def stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        if self._process.poll() is None:
            _kill_session(self._process.pid)


class Adopted(Worker):
    """A worker that another process started: its life is the run's lock, its exit code is not to be had."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    @property
    def pid(self) -> int | None:
        return self._run.worker()

    @property
    def code(self) -> int | None:
        return None

    def poll(self) -> str | None:
        return None if self._run.is_held() else "its lock is free"

    def stop(self) -> None:
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        pid = self.pid
        if pid is not None:
            _kill_session(pid)


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:  # started by hand, in a group with other processes
            os.kill(pid, signal.SIGKILL)


def _device_of(pid: int | None) -> str | None:
    """The CUDA device that a living process was given; None if it has none or the system does not tell."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"CUDA_VISIBLE_DEVICES":
                return value.decode(errors="replace")
    return None
