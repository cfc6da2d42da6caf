"""The supervisor's side of the mirrors: starts their processes, says once if one stops, never waits for one for long."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from addnorm.errors import AddnormError, UnknownName
from addnorm.store.files import make_folder
from addnorm.supervision.tracker_process import FOLDER
from addnorm.supervision.trackers import kinds

PROCESS = (sys.executable, "-m", "addnorm.supervision.tracker_process")

LAST_WAIT_S = 20.0
"""How long a mirror may take to hand on the last numbers once the training is over."""


class Mirroring:
    """Mirrors of one study, as a context: they start with the first `look` and are ended with the block.

    Nothing that a mirror does raises here: what goes wrong is said, once per mirror, and the training goes on.

    Args:
        names: the mirrors.
        say: takes a line for the user.
        command: the mirror process; only to be set by tests.
        last_wait_s: only to be set by tests.

    Raises:
        UnknownName: no such mirror.
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
            if name not in kinds():
                raise UnknownName("mirror", name, kinds())
        self._names, self._say, self._command = tuple(dict.fromkeys(names)), say, tuple(command)
        self._last_wait_s = last_wait_s
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()
        self._started = False

    def __enter__(self) -> "Mirroring":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.stdin is not None:
                with suppress(OSError):  # it has ended already
                    process.stdin.close()
        for name, process in self._processes.items():
            try:
                process.wait(self._last_wait_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self._tell(
                    name, f"did not end within {self._last_wait_s:g} s and was ended; its last numbers may be missing"
                )
        self.look(None)

    def look(self, out: Path | None) -> None:
        """Start the mirrors if that is still to do, and say which have stopped.

        Args:
            out: the study's folder, which exists; None to start nothing.
        """
        if out is not None and not self._started:
            self._started = True
            for name in self._names:
                self._start(name, out)
        for name, process in self._processes.items():
            if process.poll() not in (None, 0):
                self._tell(name, f"has stopped: {self._last_words(name)}")

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
            self._tell(name, f"could not be started: {error}")

    def _log(self, name: str) -> Path:
        return self._out / FOLDER / f"{name}.log"

    def _last_words(self, name: str) -> str:
        try:
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            return f"no log ({error.strerror})"
        return lines[-1] if lines else "it said nothing"

    def _tell(self, name: str, what: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._say(f"Mirror {name} {what}. The runs are not affected.")
