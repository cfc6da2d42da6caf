"""The supervisor's side of the trackers: start their processes, report a failure once, never wait long for one."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from addnorm.errors import AddnormError, UnknownName
from addnorm.store.files import make_folder
from addnorm.supervision.tracker_process import FOLDER
from addnorm.supervision.trackers import TRACKERS

PROCESS = (sys.executable, "-m", "addnorm.supervision.tracker_process")

LAST_WAIT_S = 20.0
"""Time that a tracker has to send the last numbers once the training is over."""


class Tracking:
    """The trackers of one study, as a context: they start with the first `update` and end with the block.

    No failure of a tracker raises here: it is reported once per tracker, and the training continues.

    Args:
        names: the trackers.
        say: receives a line for the user.
        command: the tracker's process; set by tests.
        last_wait_s: see `LAST_WAIT_S`; set by tests.

    Raises:
        UnknownName: no such tracker.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        say: Callable[[str], None],
        command: Sequence[str] = PROCESS,
        last_wait_s: float = LAST_WAIT_S,
    ) -> None:
        for name in names:
            if name not in TRACKERS.kinds():
                raise UnknownName("tracker", name, TRACKERS.kinds())
        self._names, self._say, self._command = tuple(dict.fromkeys(names)), say, tuple(command)
        self._last_wait_s = last_wait_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._reported: set[str] = set()
        self._started = False

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            # All pipes are closed before any process is waited for, so that slow trackers send their last numbers side
            # by side.
            if process.stdin is not None:
                with suppress(OSError):  # the process has ended already
                    process.stdin.close()
        for name, process in self._processes.items():
            try:
                process.wait(self._last_wait_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self._report(
                    name, f"did not end within {self._last_wait_s:g} s and was killed; its last numbers may be missing"
                )
        self.update(None)

    def update(self, out: Path | None) -> None:
        """Start the trackers at the first call, and report those that have failed.

        Args:
            out: the study's folder, which exists; None to start nothing.
        """
        if out is not None and not self._started:
            self._started = True
            for name in self._names:
                self._start(name, out)
        for name, process in self._processes.items():
            if process.poll() not in (None, 0):
                self._report(name, f"has stopped: {self._last_line(name)}")

    def _start(self, name: str, out: Path) -> None:
        self._out = out
        try:
            make_folder(out / FOLDER)
            with open(self._log(name), "wb") as log:
                self._processes[name] = subprocess.Popen(
                    [*self._command, name, str(out.absolute())],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the supervisor
                )
        except (OSError, AddnormError) as error:
            self._report(name, f"could not be started: {error}")

    def _log(self, name: str) -> Path:
        return self._out / FOLDER / f"{name}.log"

    def _last_line(self, name: str) -> str:
        try:
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return f"no log ({error.strerror})"
        return lines[-1] if lines else "its log is empty"

    def _report(self, name: str, problem: str) -> None:
        if name not in self._reported:
            self._reported.add(name)
            self._say(f"Tracker {name} {problem}. The runs are not affected.")
