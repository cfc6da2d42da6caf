"""Runs evaluated side by side: one process per core, each with one thread, so that no run's numbers depend on how many
are evaluated at once."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from addnorm.errors import AddnormError, InputError, JobError
from addnorm.insight.extrapolation.evaluate import evaluate_run
from addnorm.insight.extrapolation.recorded import Request
from addnorm.store import RunFolder
from addnorm.study.plugins import load_plugins


def default_workers() -> int:
    """One per core that this process may use; one where a GPU does the work."""
    return 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one run."""

    computed: int
    """Evaluations that were not there before."""
    problem: str | None
    """Why there are none; None if all went well."""


def evaluate_runs(
    runs: Sequence[RunFolder], request: Request, *, workers: int, plugins: Sequence[str] = ()
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Evaluate the runs, and give each with what came of it as soon as it is done.

    Args:
        workers: processes; 1 evaluates in this one.
        plugins: files of the user's own mechanisms.

    Raises:
        InputError: workers below one.
        JobError: a worker process died. What other runs had written stays.
    """
    if workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, got {workers}.")
    if min(workers, len(runs)) <= 1:
        with _one_thread():
            for run in runs:
                yield run, _tried(run.path, request)
        return
    pool = ProcessPoolExecutor(
        min(workers, len(runs)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(tuple(plugins),),
    )
    try:
        waiting: dict[Future[Outcome], RunFolder] = {pool.submit(_tried, run.path, request): run for run in runs}
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise JobError(
            "a worker process ended in the middle of its work (out of memory, perhaps). Runs that were done are kept; give "
            "the same command again, with fewer --workers or shorter --lengths."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(plugins: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that the user talks to
    torch.set_num_threads(1)
    load_plugins(plugins, Path.cwd())


def _tried(folder: Path, request: Request) -> Outcome:
    # One run's trouble must not hide the other runs. Errors travel as words: not all of them can be pickled.
    try:
        return Outcome(computed=evaluate_run(RunFolder(folder), request), problem=None)
    except AddnormError as error:
        return Outcome(computed=0, problem=str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return Outcome(computed=0, problem=f"out of memory: {str(error).partition(chr(10))[0]}")


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
