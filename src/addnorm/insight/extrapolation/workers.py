"""Parallel evaluation of runs: one process per core with one thread each, so that results do not depend on their number."""

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
from addnorm.insight.extrapolation.run_record import EvaluationRequest
from addnorm.store import RunFolder
from addnorm.study.plugins import load_plugins


def default_workers() -> int:
    """Count the cores that this process may use; 1 with a GPU."""
    return 1 if torch.cuda.is_available() else len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one run's evaluation."""

    computed: int
    """Evaluations that had not been recorded before."""
    problem: str | None
    """Reason why the run could not be evaluated; None if it was."""


def evaluate_runs(
    runs: Sequence[RunFolder], request: EvaluationRequest, *, workers: int, plugins: Sequence[str] = ()
) -> Iterator[tuple[RunFolder, Outcome]]:
    """Evaluate the runs and yield each with its outcome as soon as it is done.

    Args:
        runs: finished runs.
        request: the evaluations.
        workers: processes; with 1, the calling process evaluates.
        plugins: files with the user's own mechanisms.

    Raises:
        InputError: `workers` is below one.
        JobError: a worker process died. Records of other runs are kept.
    """
    if workers < 1:
        raise InputError(f"workers: expected a whole number of at least 1, got {workers}.")
    if min(workers, len(runs)) <= 1:
        with _one_thread():
            for run in runs:
                yield run, _evaluate_safely(run.path, request)
        return
    pool = ProcessPoolExecutor(
        min(workers, len(runs)),
        # Not forked: threads of torch that hold a lock in this process would hold it for ever in the child.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(tuple(plugins),),
    )
    try:
        waiting: dict[Future[Outcome], RunFolder] = {
            pool.submit(_evaluate_safely, run.path, request): run for run in runs
        }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise JobError(
            "a worker process died during an evaluation, possibly for lack of memory. Finished evaluations are kept; give "
            "the same command again, with fewer --workers or shorter --lengths."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(plugins: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    torch.set_num_threads(1)
    load_plugins(plugins, Path.cwd(), is_checked=True)


def _evaluate_safely(folder: Path, request: EvaluationRequest) -> Outcome:
    # An error of one run must not hide the other runs. Errors are sent as text because not all can be pickled.
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
