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

from addnorm.errors import JobError
from addnorm.store import RunFolder, StudyFolder
from addnorm.study.definition import Study
from addnorm.supervision import supervisor
from addnorm.supervision.executors import WORKER, Executor, ExecutorSpec, Work, WorkerState
from addnorm.supervision.run import run
from addnorm.training import worker


class Here(Executor):
    """Trains each run before it returns."""

    def __init__(self, plugins: Sequence[str]) -> None:
        self.plugins = plugins
        self.codes: dict[str, int] = {}

    @classmethod
    def of(cls, spec: ExecutorSpec, work: Work) -> "Here":
        return cls(work.command[len(WORKER) :])

    @classmethod
    def obstacle(cls) -> None:
        return None

    def start(self, runs: Sequence[RunFolder]) -> dict[str, str | JobError]:
        run = runs[0]
        run.retry()
        self.codes[run.name] = work_here(run.path, self.plugins)
        return {run.name: "here"}

    def find(self, runs: Sequence[RunFolder]) -> dict[str, str]:
        assert not any(run.is_held() for run in runs), "expected no other process at work"
        return {}

    def poll(self, runs: Sequence[RunFolder]) -> dict[str, WorkerState]:
        ends = {run.name: self.codes[run.name] for run in runs}
        return {name: WorkerState(phase="ended", note=f"exit code {code}", code=code) for name, code in ends.items()}

    def stop(self, runs: Sequence[RunFolder]) -> None:
        pass

    def kill(self, runs: Sequence[RunFolder]) -> None:
        pass


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
