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
    """Records a request to stop (SIGTERM or SIGINT)."""

    def __init__(self) -> None:
        self.received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


def main(arguments: list[str] | None = None) -> int:
    """Train or resume one run. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print("usage: python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR", file=sys.stderr)  # noqa: T201  the run's log
        return 2
    *plugins, folder = arguments
    run, stop = RunFolder(Path(folder)), StopRequest()
    try:
        with run.claim() as events:
            return _train(run, events, stop, plugins)
    except NotClaimed as error:
        _log(str(error))
        return ExitCode.of(error.state)
    except DiskFull as error:
        return _end(run, "blocked", f"disk: {error}", ExitCode.BLOCKED, cause="disk")


def _train(run: RunFolder, events: EventWriter, stop: StopRequest, plugins: Sequence[str]) -> int:
    from addnorm.training.attempt import Attempt, CannotContinue

    try:
        return Attempt(run, events, lambda: stop.received, plugins).train()
    except DiskFull:
        raise
    except CannotContinue as error:
        return _end(run, error.state, str(error), ExitCode.FAILED, **({"cause": error.cause} if error.cause else {}))
    except AddnormError as error:
        return _end(run, "failed", str(error), ExitCode.FAILED)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _log(traceback.format_exc())
        reason = str(error).partition("\n")[0]
        return _end(run, "failed", "out of memory" + (f": {reason}" if reason else ""), ExitCode.FAILED)


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
