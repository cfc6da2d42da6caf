"""The worker command trains or resumes one run:

    python -m addnorm.training.worker [--devices N] [--sharded] [PLUGIN.py ...] RUN_DIR

With `--devices N` it starts N - 1 further processes (ranks) of itself, or joins those that torchrun or srun started; with
`--sharded` each keeps a share of the weights. All state is in the run's folder. The exit codes are those of `ExitCode`; any
other is a crash, after which the supervisor may start the worker again.
"""

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from addnorm.errors import AddnormError, InputError, JobError
from addnorm.store.ending import WRONG_INPUT
from addnorm.store.events import EventWriter
from addnorm.store.files import Damaged, DiskError, DiskFull
from addnorm.store.run import NotClaimed, Removed, RunFolder
from addnorm.training.exit_code import ExitCode

# torch takes seconds to import. A worker without ranks imports it only once it has claimed the run: a second worker ends
# at once, and an ImportError is recorded as the run's.
if TYPE_CHECKING:
    import torch

    from addnorm.training.attempt import Attempt
    from addnorm.training.ranks import RankPlace, Ranks

_USAGE = "python -m addnorm.training.worker [--devices N] [--sharded] [PLUGIN.py ...] RUN_DIR"


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
    try:
        command = _read(arguments)
    except (IndexError, ValueError):
        print(f"usage: {_USAGE}", file=sys.stderr)  # noqa: T201  the run's log
        return 2
    run, devices = RunFolder(Path(command.folder)), command.devices
    stop = StopRequest(run)
    joined: RankPlace | None = None
    if devices > 1 or "RANK" in os.environ:
        from addnorm.training.ranks import joined_place

        joined = joined_place(run.path, devices)
    if joined is not None and joined.rank > 0:
        return _follow(run, joined, stop, command)
    if run.stop_path.exists():
        _log(f"{run.stop_path} asks the run to stop")
        return _dismiss(joined, ExitCode.STOPPED)
    try:
        with run.claim() as events:
            return _train(run, events, stop, command, _Company(joined, devices, arguments))
    except NotClaimed as error:
        _log(str(error))
        return _dismiss(joined, ExitCode.of(error.state))
    except (Removed, Damaged, DiskError) as error:
        return _block(run, error)
    except AddnormError as error:
        return _fail(run, error)


@dataclass(frozen=True, kw_only=True)
class _Command:
    """The command's options and arguments."""

    devices: int
    sharded: bool
    plugins: list[str]
    folder: str


def _read(arguments: Sequence[str]) -> _Command:
    devices, sharded = 1, False
    while arguments[0] in ("--devices", "--sharded"):
        if arguments[0] == "--devices":
            devices, arguments = int(arguments[1]), arguments[2:]
        else:
            sharded, arguments = True, arguments[1:]
    *plugins, folder = arguments
    return _Command(devices=devices, sharded=sharded, plugins=plugins, folder=folder)


@dataclass(frozen=True)
class _Company:
    """The other ranks of a run, as its rank 0 gets them."""

    joined: "RankPlace | None"
    """Its place among ranks that were started beside it; None if it starts them."""
    devices: int
    arguments: Sequence[str]
    """Those of this command, which the ranks have too."""

    @contextmanager
    def meet(self) -> "Iterator[tuple[Ranks, torch.device | None]]":
        """All ranks, and the device of this one."""
        if self.joined is None and self.devices == 1:
            from addnorm.training.ranks import Alone

            yield Alone(), None
            return
        from addnorm.training import ranks

        with ExitStack() as stack:
            if self.joined is None:
                place, started = stack.enter_context(ranks.started_ranks(self.arguments, self.devices))
            else:
                place, started = self.joined, []
            group = stack.enter_context(ranks.met(place, started))
            group.begin(None)
            yield group, place.device()


def _follow(run: RunFolder, place: "RankPlace", stop: StopRequest, command: _Command) -> int:
    """Train as a rank that writes nothing."""
    from addnorm.training.ranks import RankLost, met

    try:
        with met(place) as ranks:
            code = ranks.begin(None)
            if code is not None:
                return code
            return _attempt(run, None, stop, command, ranks, place.device()).train()
    except (AddnormError, RankLost) as error:
        _log(f"rank {place.rank}: {error}")
        return ExitCode.FAILED


def _dismiss(place: "RankPlace | None", code: ExitCode) -> ExitCode:
    """Tell the ranks that wait for this one, if there are any, to end with the same exit code."""
    if place is not None:
        from addnorm.training.ranks import RankLost, met

        with suppress(RankLost), met(place) as ranks:
            ranks.begin(code)
    return code


def _attempt(
    run: RunFolder,
    events: EventWriter | None,
    stop: StopRequest,
    command: _Command,
    ranks: "Ranks",
    device: "torch.device | None",
) -> "Attempt":
    from addnorm.training.attempt import Attempt

    return Attempt(run, events, stop.is_received, command.plugins, ranks=ranks, device=device, sharded=command.sharded)


def _train(run: RunFolder, events: EventWriter, stop: StopRequest, command: _Command, company: _Company) -> int:
    try:
        with company.meet() as (ranks, device):
            return _attempt(run, events, stop, command, ranks, device).train()
    except Removed:
        raise
    except AddnormError as error:
        # First of all checks, since any error may be a consequence: files that the other worker has replaced look
        # damaged from here, and a mark from this process would end a run that is being trained.
        if run.is_superseded():
            # This process slept, or its host was cut off, and another one went on. The run is that one's now.
            _log(f"{run.path} was taken over by another worker: {error}")
            return ExitCode.STOPPED
        if isinstance(error, Damaged | DiskError):
            raise
        return _fail(run, error)
    except Exception as error:
        failure = _of_the_device(error)
        if failure is None:
            raise
        _log(traceback.format_exc())
        reason = str(error).partition("\n")[0]
        return _end(run, "failed", failure + (f": {reason}" if reason else ""), ExitCode.FAILED)


def _fail(run: RunFolder, error: AddnormError) -> int:
    from addnorm.training.attempt import CannotContinue

    if isinstance(error, CannotContinue):
        code = ExitCode.of(error.state)
        return _end(run, error.state, str(error), code, **({"cause": error.cause} if error.cause else {}))
    cause = {"cause": WRONG_INPUT} if isinstance(error, InputError) else {}
    return _end(run, "failed", str(error), ExitCode.FAILED, **cause)


def _block(run: RunFolder, error: AddnormError) -> ExitCode:
    """End a run whose folder cannot be written or read, or was removed."""
    if run.is_removed:
        _log(f"{run.path} was removed: {error}")
        return ExitCode.BLOCKED
    if isinstance(error, Removed):  # its lock alone; the next attempt makes another one
        _log(str(error))
        return ExitCode.STOPPED
    if isinstance(error, DiskError):
        cause = "disk" if isinstance(error, DiskFull) else "write"
        return _end(run, "blocked", f"disk: {error}", ExitCode.BLOCKED, cause=cause)
    return _end(run, "blocked", str(error), ExitCode.BLOCKED, cause="damaged")


def _end(run: RunFolder, state: Any, reason: str, code: ExitCode, **values: Any) -> ExitCode:
    _log(f"{state}: {reason}")
    try:
        with suppress(Damaged):
            values["step"] = int((run.last_event() or {}).get("step", 0))
        run.mark(state, **{"step": 0, "reason": reason, "log": run.last_words(), **values})
    except JobError as error:  # the disk has no room even for the reason; the exit code reports the state
        _log(str(error))
    return code


def _log(text: str) -> None:
    with suppress(OSError):  # the log may be on the full disk
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _of_the_device(error: Exception) -> str | None:
    """Sentence on an error of the device that would come again at every attempt; None for any other error."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return "out of memory"
    # Triton's errors share no base class, and the one for too little shared memory is no RuntimeError. Their modules are
    # looked at by name: Triton is not installed everywhere.
    if any(cls.__module__.startswith("triton.") for cls in type(error).__mro__):
        return "a kernel cannot run on this GPU; set attention to 'sdpa' or 'streaming'"
    if isinstance(error, torch.AcceleratorError):
        return "the GPU failed"
    return None


if __name__ == "__main__":
    sys.exit(main())
