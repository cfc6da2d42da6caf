"""`addnorm run` and the real worker in processes that are forked from one that has imported torch, so that a kill costs
a tenth of a second instead of two.

All is real but three things: processes are forked instead of started, the supervisor looks more often and is more
patient, and a `Trouble` may befall a worker.
"""

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import fake_worker
import torch

import addnorm.supervision.run
from addnorm import cli
from addnorm.store import EventWriter, RunFolder
from addnorm.supervision import supervisor
from addnorm.supervision.executors.local import Child, LocalExecutor
from addnorm.training import checkpoint, ranks, worker
from addnorm.training.loop import Trainer

torch.set_num_threads(1)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["warmth"])


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong in workers."""

    befalls: dict[str, str] = field(default_factory=dict)
    """By run: `nan`, `infinite`, `memory`, `allocator`, `dies`, `rank dies` (rank 1, once), `small disk`, `clock`."""
    at: int = 4
    """After this many steps of the run."""
    kills: Path | None = None
    """If given, most workers are killed amid one of their writes; each kill adds a line here."""
    seed: int = 0
    retries: int = 1000
    pace_s: float = 0.0
    """Wait before each step, for tests that must act while a run is at work."""
    paced_from: int = 0
    """Number of steps without that wait."""


CALM = Trouble()


def begin(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a function of this module in a warm process."""
    process = _context.Process(target=target, args=arguments)
    # Python 3.11 forgets sys.path when it preloads, and says nothing when a module is then not found.
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with patch.dict(os.environ, {"PYTHONPATH": path}):
        process.start()
    return process


def begin_run(log: Path, trouble: Trouble, *arguments: str) -> BaseProcess:
    """Start `addnorm run ARGUMENTS`."""
    return begin(addnorm_run, log, trouble, arguments)


def begin_worker(
    run: Path,
    trouble: Trouble = CALM,
    options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> BaseProcess:
    """Start a worker by itself, with options or plugins before its folder."""
    return begin(work, run, trouble, options, dict(environment))


def addnorm_run(log: Path, trouble: Trouble, arguments: Sequence[str]) -> None:
    _speak_to(log)
    WarmExecutor.trouble = trouble
    addnorm.supervision.run.EXECUTORS = SimpleNamespace(class_of=lambda kind: WarmExecutor)  # type: ignore[assignment]
    addnorm.supervision.run.supervise = partial(  # type: ignore[assignment]
        supervisor.supervise, tick_s=0.1, backoff_s=0.01, retries=trouble.retries
    )
    sys.exit(cli.main(["run", *arguments]))


def work(
    run: Path, trouble: Trouble, options: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    os.setsid()
    os.environ.update(environment)
    _speak_to(RunFolder(run).log_path)
    befall(RunFolder(run), trouble)
    ranks.spawn = fork_rank
    sys.exit(worker.main([*options, str(run)]))


def fork_rank(arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
    """A rank of the worker that calls."""
    pid = os.fork()
    if pid == 0:
        os.environ.update(environment)
        _exit_with(lambda: sys.exit(worker.main(list(arguments))))
    return _Forked(pid)


def _exit_with(function: Callable[[], None]) -> None:
    """End a forked process as Python ends one that called a function."""
    code = 1
    try:
        function()
    except SystemExit as end:
        code = cast(int, end.code)
    except BaseException:  # noqa: BLE001  as Python does at the end of a process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class WarmExecutor(LocalExecutor):
    """Forks its workers."""

    trouble = CALM

    def spawn(self, run_dir: Path, device: str | None) -> Child:
        pid = os.fork()
        if pid == 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _exit_with(lambda: work(run_dir.absolute(), self.trouble, self.command[3:]))
        return Child(cast("subprocess.Popen[bytes]", _Forked(pid)))


class _Forked:
    """The part of Popen that `Child` uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a rank", timeout or 0.0)
            time.sleep(0.005)
        return cast(int, self.returncode)


class FakeExecutor(LocalExecutor):
    """Forks the fake worker, whose own start takes far longer than what it does."""

    def spawn(self, run_dir: Path, device: str | None) -> Child:
        return Child(cast("subprocess.Popen[bytes]", _Begun(begin(fake_work, run_dir.absolute()))))


def fake_work(run: Path) -> None:
    os.setsid()
    _speak_to(RunFolder(run).log_path)
    sys.argv = ["fake_worker.py", str(run)]
    sys.exit(fake_worker.main())


class _Begun:
    """The part of Popen that `Child` uses, of a process of the fork server."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


def befall(run: RunFolder, trouble: Trouble) -> None:
    """Let this process have its trouble."""
    if trouble.kills is not None:
        # The number of strikes so far, not the process: the same seed gives the same storm, but for the order of rivals.
        before = trouble.kills.read_text(encoding="utf-8").count("\n") if trouble.kills.exists() else 0
        chance = random.Random(f"{trouble.seed} {run.name} {before}")
        # Some strikes hit the start's own writes; the others one of the first four checkpoints or what lies between.
        kill_amid_writes(
            chance.choice((chance.randrange(12), chance.randrange(20, 120), chance.randrange(20, 120))), trouble.kills
        )
    how = trouble.befalls.get(run.name)
    if how == "small disk":
        sys.dont_write_bytecode = True  # it would keep what it could write in part only
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    if how == "clock":
        now = time.time()
        back = iter(range(10**9))
        time.time = lambda: now - 3600.0 * next(back)
        EventWriter.__init__.__kwdefaults__["clock"] = time.time  # type: ignore[misc]
    train_step = Trainer.train_step

    def troubled(trainer: Trainer) -> Any:
        time.sleep(trouble.pace_s if trainer.step >= trouble.paced_from else 0)
        if trainer.step >= trouble.at:
            if how == "nan":
                next(trainer.model.parameters()).data.fill_(float("nan"))
            elif how == "infinite":
                return replace(train_step(trainer), loss=torch.tensor(float("inf")))
            elif how == "memory":
                bytearray(1 << 62)
            elif how == "allocator":
                torch.empty(1 << 60)
            elif how == "dies":
                print("the worker's last words", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "rank dies" and trainer.ranks.rank == 1 and run.attempts() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return train_step(trainer)

    Trainer.train_step = troubled  # type: ignore[method-assign]


def kill_amid_writes(strike_at: int, kills: Path) -> None:
    """Kill -9 this process at its write number `strike_at`: half of the bytes written, or before or after a rename,
    a deletion or a sync."""
    write, done = os.write, 0

    def due() -> bool:
        nonlocal done
        done += 1
        return done > strike_at

    def die(where: str) -> None:
        handle = os.open(kills, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        write(handle, f"{where}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def half_write(handle: int, data: Any) -> int:
        if handle > 2 and due():
            write(handle, bytes(data)[: len(data) // 2])
            die("an event")
        return write(handle, data)

    def around(name: str, where: str) -> None:
        plain = getattr(os, name)

        def struck(*arguments: Any, **named: Any) -> Any:
            if due():
                die(f"before {where}")
            answer = plain(*arguments, **named)
            if due():
                die(f"after {where}")
            return answer

        setattr(os, name, struck)

    hash_write, written = checkpoint._Hashing.write, 0

    def half_checkpoint(self: Any, data: Any) -> int:
        nonlocal written
        written += 1
        if written % 50 == 0 and due():  # a checkpoint has hundreds of writes, an event has one
            hash_write(self, bytes(data)[: len(data) // 2])
            self._file.flush()
            die("a checkpoint")
        return hash_write(self, data)

    os.write = half_write
    for name, where in (("replace", "a rename"), ("unlink", "a deletion"), ("fsync", "a sync")):
        around(name, where)
    checkpoint._Hashing.write = half_checkpoint  # type: ignore[method-assign]


def _speak_to(log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for place in (1, 2):
        os.dup2(handle, place)
    os.close(handle)
