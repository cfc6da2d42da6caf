"""A worker that this supervisor did not start and that no scheduler lists: known by the run's claim alone."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from addnorm.store import RunFolder


class FoundWorker:
    """A living worker of a run, here or on another host: alive while its claim is in force; its exit code is unknown."""

    code = None

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        holder = run.holder()
        self.id = holder.worker if holder is not None else f"process {self.pid}"

    @property
    def pid(self) -> int | None:
        """Process id; None on another host, or if it is not known yet."""
        return self._run.worker()

    def poll(self) -> str | None:
        """None while it is alive; afterwards how that is known."""
        return None if self._run.is_held() else "its claim has lapsed"

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


def kill_session(pid: int) -> None:
    """Kill a worker and its children."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:  # started by hand, in a process group with other processes
            os.kill(pid, signal.SIGKILL)


def device_of(pid: int | None) -> str | None:
    """The CUDA device assigned to a living process; None if it has none or /proc is not readable."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"CUDA_VISIBLE_DEVICES":
                return value.decode(errors="replace")
    return None
