"""The one worker command: `python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR` trains a run from where it stands.

All state is in the run's folder. Exit codes are those of `ExitCode`; any other is a crash, and the supervisor may
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


class Stop:
    """Becomes true when somebody asks the worker to stop (SIGTERM or SIGINT)."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def main(arguments: list[str] | None = None) -> int:
    """Train one run. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print("usage: python -m addnorm.training.worker [PLUGIN.py ...] RUN_DIR", file=sys.stderr)  # noqa: T201  the run's log
        return 2
    *plugins, folder = arguments
    run, stop = RunFolder(Path(folder)), Stop()
    try:
        with run.claim() as events:
            return _work(run, events, stop, plugins)
    except NotClaimed as error:
        _tell(str(error))
        return ExitCode.of(error.state)
    except DiskFull as error:
        return _give_up(run, "blocked", f"disk: {error}", ExitCode.BLOCKED, cause="disk")


def _work(run: RunFolder, events: EventWriter, stop: Stop, plugins: Sequence[str]) -> int:
    from addnorm.training.attempt import Attempt, CannotGoOn

    try:
        return Attempt(run, events, lambda: stop.asked, plugins).work()
    except DiskFull:
        raise
    except CannotGoOn as error:
        return _give_up(run, error.state, str(error), ExitCode.FAILED)
    except AddnormError as error:
        return _give_up(run, "failed", str(error), ExitCode.FAILED)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _tell(traceback.format_exc())
        said = str(error).partition("\n")[0]
        return _give_up(run, "failed", "out of memory" + (f": {said}" if said else ""), ExitCode.FAILED)


def _give_up(run: RunFolder, state: Any, reason: str, code: int, **values: Any) -> int:
    _tell(f"{state}: {reason}")
    try:
        last = run.last_event() or {}
        run.mark(state, reason=reason, step=int(last.get("step", 0)), log=run.last_words(), **values)
    except JobError as error:  # a disk so full that not even the reason fits: the exit code alone says it
        _tell(str(error))
    return code


def _tell(text: str) -> None:
    with suppress(OSError):  # the log may lie on the full disk that is to be told of
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


if __name__ == "__main__":
    sys.exit(main())
