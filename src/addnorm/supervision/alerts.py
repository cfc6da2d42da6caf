"""Commands of the user's that are started when a run fails and when the study ends.

The facts are in the command's environment: `ADDNORM_EVENT` (`end` or `failure`), `ADDNORM_STUDY`, `ADDNORM_DIR`,
`ADDNORM_RUNS`, `ADDNORM_FINISHED` and `ADDNORM_FAILED`; for a failure also `ADDNORM_RUN`, `ADDNORM_STATE` and `ADDNORM_REASON`.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from addnorm.store import RunStatus, StudyFolder

LAST_WAIT_S = 30.0
"""Time that the commands have to end once the study has."""
_LOST = ("failed", "diverged")


class Alerts:
    """The commands of one `addnorm run`. None of them can stop the training: what goes wrong is reported.

    Args:
        on_end: started by the shell when no run is trained any more; None for nothing.
        on_failure: started once for each run that fails or diverges while this command trains.
        say: receives a line for the user.
        last_wait_s: see `LAST_WAIT_S`; set by tests.
    """

    def __init__(
        self,
        on_end: str | None,
        on_failure: str | None,
        *,
        say: Callable[[str], None],
        last_wait_s: float = LAST_WAIT_S,
    ) -> None:
        self._on_end, self._on_failure, self._say, self._last_wait_s = on_end, on_failure, say, last_wait_s
        self._known: set[str] | None = None
        """Runs that were lost already; None before the first look."""
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def update(self, folder: StudyFolder, statuses: Sequence[RunStatus]) -> None:
        """Start the command for failures since the last call. Failures before the first one are known to the user."""
        lost = {status.run: status for status in statuses if status.state in _LOST}
        if self._known is None:
            self._known = set(lost)
        for name in [name for name in lost if name not in self._known]:
            status = lost[name]
            facts = {"RUN": name, "STATE": status.state, "REASON": status.reason or ""}
            self._start(self._on_failure, "failure", folder, statuses, facts)
        # Replaced, not added to: a run that is retried and fails again is news again.
        self._known = set(lost)

    def end(self, folder: StudyFolder, statuses: Sequence[RunStatus]) -> None:
        """Start the command for the end, after those for the last failures, and wait for all of them."""
        self.update(folder, statuses)
        self._start(self._on_end, "end", folder, statuses, {})
        for command, process in self._processes:
            try:
                status = process.wait(self._last_wait_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                self._say(f"addnorm: {command!r} did not end within {self._last_wait_s:g} s and was stopped.")
            else:
                if status:
                    self._say(f"addnorm: {command!r} ended with status {status}.")
        self._processes.clear()

    def _start(
        self,
        command: str | None,
        event: str,
        folder: StudyFolder,
        statuses: Sequence[RunStatus],
        facts: Mapping[str, str],
    ) -> None:
        if command is None:
            return
        states = [status.state for status in statuses]
        variables = {
            "EVENT": event,
            "STUDY": str(folder.plan["study"]),
            "DIR": str(folder.path),
            "RUNS": str(len(states)),
            "FINISHED": str(states.count("finished")),
            "FAILED": str(sum(state in _LOST for state in states)),
            **facts,
        }
        environment = {**os.environ, **{f"ADDNORM_{name}": value for name, value in variables.items()}}
        try:
            # A session of its own: Ctrl-C, which ends the training, is not meant for it.
            process = subprocess.Popen(
                command, shell=True, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._say(f"addnorm: {command!r} could not be started ({error.strerror}).")
        else:
            self._processes.append((command, process))
