"""Training in this process: `run` with its supervisor, and workers that are calls of the worker's function.

What starts processes is tested in `tests/supervision`; a study that is only read needs none, and each would import torch.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from addnorm.store import RunFolder, StudyFolder
from addnorm.study.definition import Study
from addnorm.supervision import supervisor
from addnorm.supervision.executors import WORKER, Executor, Worker
from addnorm.supervision.run import run
from addnorm.training import worker


class Ended(Worker):
    """A worker that has returned."""

    def __init__(self, code: int) -> None:
        self._code = code

    @property
    def pid(self) -> None:
        return None

    @property
    def code(self) -> int:
        return self._code

    def poll(self) -> str:
        return f"exit code {self._code}"

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class Here(Executor):
    """Trains each run before it returns."""

    slots = 1

    def __init__(self, plugins: Sequence[str]) -> None:
        self.plugins = plugins

    @classmethod
    def create(cls, threads: int = 1, *, slots: int | None = None, command: Sequence[str] = WORKER) -> "Here":
        return cls(command[len(WORKER) :])

    def start(self, run_dir: Path) -> Worker:
        return Ended(work_here(run_dir, self.plugins))

    def adopt(self, run_dir: Path) -> Worker:
        raise AssertionError(f"expected no other process at work in {run_dir}")


def work_here(run_dir: Path, plugins: Sequence[str] = ()) -> int:
    """Train one run as its worker does. Returns the exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with open(RunFolder(run_dir).log_path, "a") as log, redirect_stdout(log), redirect_stderr(log):
            return worker.main([*plugins, str(run_dir)])
    finally:
        for number, handler in handlers.items():  # the worker has its own
            signal.signal(number, handler)


@contextmanager
def workers_here() -> Iterator[None]:
    """`run`, and the command of that name, train in this process, one run after the other."""
    with (
        patch("addnorm.supervision.run.EXECUTORS", SimpleNamespace(class_of=lambda kind: Here)),
        patch("addnorm.supervision.run.supervise", partial(supervisor.supervise, tick_s=0.0, backoff_s=0.0)),
    ):
        yield


def train_here(study: Study, out: Path) -> StudyFolder:
    """Train a study's runs, one after the other."""
    with workers_here():
        return run(study, out=out)
