"""The worker command: `python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR` trains or resumes one run.

All state is in the run's folder. The exit codes are those of `ExitCode`; any other is a crash, after which the supervisor may
start the worker again.
"""

import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from addnorm.errors import AddnormError, JobError
from addnorm.store.events import EventWriter
from addnorm.store.files import DiskFull
from addnorm.store.run import NotClaimed, RunFolder
from addnorm.training.exit_code import ExitCode


class StopRequest:
    """A request to stop: SIGTERM, SIGINT, or the file STOP, which reaches a worker that no signal does.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run, self._received = run, False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def is_received(self) -> bool:
        """True once the worker has been asked to stop.

        Raises:
            JobError: another worker has taken the run over.
        """
        self._run.require_claim()
        return self._received or self._run.stop_path.exists()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True


def main(arguments: list[str] | None = None) -> int:
    """Train or resume one run. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print("usage: python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR", file=sys.stderr)  # noqa: T201  the run's log
        return 2
    *plugins, folder = arguments
    run = RunFolder(Path(folder))
    stop = StopRequest(run)
    if run.stop_path.exists():
        _log(f"{run.stop_path} asks the run to stop")
        return ExitCode.STOPPED
    try:
        with run.claim() as events:
            return _train(run, events, stop, plugins)
    except NotClaimed as error:
        _log(str(error))
        return ExitCode.of(error.state)
    except DiskFull as error:
        return _end(run, "blocked", f"disk: {error}", ExitCode.BLOCKED, cause="disk")


def _train(run: RunFolder, events: EventWriter, stop: StopRequest, plugins: Sequence[str]) -> int:
    from addnorm.training.attempt import Attempt

    try:
        return Attempt(run, events, stop.is_received, plugins).train()
    except DiskFull:
        raise
    except AddnormError as error:
        if run.is_superseded():
            # This process slept, or its host was cut off, and another one went on. The run is that one's now.
            _log(f"{run.path} was taken over by another worker: {error}")
            return ExitCode.STOPPED
        return _fail(run, error)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _log(traceback.format_exc())
        reason = str(error).partition("\n")[0]
        return _end(run, "failed", "out of memory" + (f": {reason}" if reason else ""), ExitCode.FAILED)


def _fail(run: RunFolder, error: AddnormError) -> int:
    from addnorm.training.attempt import CannotContinue

    if isinstance(error, CannotContinue):
        return _end(run, error.state, str(error), ExitCode.FAILED, **({"cause": error.cause} if error.cause else {}))
    return _end(run, "failed", str(error), ExitCode.FAILED)


def _end(run: RunFolder, state: Any, reason: str, code: int, **values: Any) -> int:
    _log(f"{state}: {reason}")
    try:
        last = run.last_event() or {}
        run.mark(state, reason=reason, step=int(last.get("step", 0)), log=run.last_words(), **values)
    except JobError as error:  # the disk has no room even for the reason; the exit code reports the state
        _log(str(error))
    return code


def _log(text: str) -> None:
    with suppress(OSError):  # the log may be on the full disk
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


if __name__ == "__main__":
    sys.exit(main())
