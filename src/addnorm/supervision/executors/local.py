"""Workers as processes of this machine, each in a session of its own.

With a session of its own, a worker does not receive Ctrl-C from the terminal and outlives its supervisor. Every worker has
the same number of threads, because the number of threads changes the last bits of the loss.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from addnorm.errors import InputError
from addnorm.store import RunFolder
from addnorm.store.files import disk_error
from addnorm.supervision.executors import WORKER, Executor, Worker

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
        slots: number of workers at the same time.
        threads: CPU threads of each worker.
        devices: one CUDA device (as in CUDA_VISIBLE_DEVICES) per slot, or none.
        command: the worker command, to which the run's folder is appended.

    Raises:
        InputError: slots or threads below 1, or a number of devices that differs from the slots.
    """

    def __init__(
        self, slots: int, threads: int = 1, *, devices: Sequence[str] = (), command: Sequence[str] = WORKER
    ) -> None:
        if slots < 1 or threads < 1:
            raise InputError(f"executor: expected slots and threads of at least 1, got {slots} and {threads}.")
        if devices and len(devices) != slots:
            raise InputError(f"executor: expected one device per slot, got {len(devices)} devices for {slots} slots.")
        self._slots = slots
        self.threads = threads
        self.devices = tuple(devices)
        self.command = tuple(command)
        self._alive: list[tuple[Worker, str | None]] = []

    @classmethod
    def create(cls, threads: int = 1, *, slots: int | None = None, command: Sequence[str] = WORKER) -> "LocalExecutor":
        """An executor with one slot per visible GPU, or without GPUs one per `threads` available CPU cores.

        Args:
            threads: CPU threads of each worker.
            slots: number of workers at the same time; GPUs are then assigned in turn.
            command: the worker command, to which the run's folder is appended.

        Raises:
            InputError: slots or threads below 1.
        """
        if slots is not None and slots < 1:
            raise InputError(
                f"workers: expected a whole number of at least 1, got {slots}. Omit it for one worker per device."
            )
        import torch  # not at the top of the file: torch takes seconds to import, and only this method needs it

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
        self._alive.append((worker, device))
        return worker

    def adopt(self, run_dir: Path) -> Worker:
        worker = Adopted(RunFolder(run_dir))
        self._alive.append((worker, _device_of(worker.pid)))
        return worker

    def _free_device(self) -> str | None:
        self._alive = [(worker, device) for worker, device in self._alive if worker.poll() is None]
        used = {device for _, device in self._alive}
        return next((device for device in self.devices if device not in used), None)

    def _environment(self, device: str | None) -> dict[str, str]:
        environment = os.environ | dict.fromkeys(_THREADS, str(self.threads))
        environment |= {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
        return environment if device is None else environment | {"CUDA_VISIBLE_DEVICES": device}


class Child(Worker):
    """A worker that this process started."""

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
    """A worker that another process started: alive while the run's lock is held; its exit code is unknown."""

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
        else:  # started by hand, in a process group with other processes
            os.kill(pid, signal.SIGKILL)


def _device_of(pid: int | None) -> str | None:
    """The CUDA device assigned to a living process; None if it has none or /proc is not readable."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"CUDA_VISIBLE_DEVICES":
                return value.decode(errors="replace")
    return None
