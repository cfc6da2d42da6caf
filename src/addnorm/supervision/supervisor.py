"""Supervision of a study: start its workers, restart those that crash, adopt those of an earlier supervisor.

The supervisor keeps no state of its own: finished, running and waiting runs are read from their folders. If the supervisor
is killed, its workers go on training and the next supervisor adopts them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from addnorm.errors import JobError
from addnorm.store import DiskFull, Index, Lock, RunStatus, State, StudyFolder
from addnorm.supervision.executors import Executor
from addnorm.supervision.stop_signals import StopSignals
from addnorm.supervision.supervised_run import SupervisedRun, free_bytes
from addnorm.supervision.supervisor_log import SupervisorLog
from addnorm.training.exit_code import ExitCode


def supervise(
    study: StudyFolder,
    executor: Executor,
    *,
    on_tick: Callable[[list[RunStatus]], None],
    retries: int = 3,
    backoff_s: float = 1.0,
    tick_s: float = 1.0,
    again: Collection[State] = (),
) -> list[RunStatus]:
    """Train the runs of a study until each has ended or cannot continue.

    Runs start in the plan's order. A run that crashes is restarted; after more than `retries` consecutive crashes without
    progress it is marked FAILED, with the last lines of its log. A run blocked by a full disk waits for free space while
    other runs are training; a run blocked by anything else waits for the next call. The first Ctrl-C or SIGTERM asks the
    workers to write a checkpoint and stop, and waits for them; the second one kills them.

    Args:
        study: the study's folder.
        executor: starts the workers.
        on_tick: called with the status of every run after each update.
        retries: restarts after consecutive crashes without progress.
        backoff_s: wait before the first restart; it doubles with each further one.
        tick_s: time between two updates.
        again: states of ended runs ("failed", "diverged") that are resumed from their newest checkpoint.

    Returns:
        The status of every run at the end.

    Raises:
        JobError: another supervisor works on the folder.
        DiskFull: no room for the supervisor's log.
    """
    lock = Lock(study.lock_path)
    if not lock.try_acquire():
        raise JobError(
            f"{study.path}: expected no other supervisor, got process {lock.held_by()}. "
            f"Follow its progress with `addnorm status {study.path}`, or stop it first."
        )
    try:
        for run in study.runs():
            ending = run.ending()
            if ending is not None and ending["state"] in again:
                run.retry()
        with SupervisorLog(study.path / "supervisor.jsonl") as log, StopSignals() as signals:
            supervisor = _Supervisor(study, executor, log, retries, backoff_s)
            while True:
                supervisor.tick(signals.count)
                statuses = supervisor.statuses()
                on_tick(statuses)
                if supervisor.is_over():
                    return statuses
                signals.wait(tick_s)
    finally:
        lock.release()


class _Supervisor:
    def __init__(
        self, study: StudyFolder, executor: Executor, log: SupervisorLog, retries: int, backoff_s: float
    ) -> None:
        self.executor = executor
        self.log = log
        self.retries = retries
        self.backoff_s = backoff_s
        self.index = Index(study.path)
        self.stop_signals = 0
        self.index_problems: Mapping[str, str] = {}
        self.runs = [SupervisedRun(folder) for folder in study.runs()]
        for run in self.runs:
            run.update_progress()
        log.write("supervisor started", runs=len(self.runs))

    def tick(self, stop_signals: int) -> None:
        """Check every run once and start, adopt, restart or stop workers. `stop_signals`: number received so far."""
        self.stop_signals = stop_signals
        for run in self.runs:
            if run.worker is not None and (outcome := run.worker.poll()) is not None:
                self.end(run, outcome)
        for run in self.runs:
            if run.worker is None and run.folder.is_held():
                run.worker, run.stop_requested = self.executor.adopt(run.folder.path), False
                self.log.write("adopted", run=run.name, pid=run.worker.pid)
        if stop_signals:
            self.stop()
        else:
            self.start()
        self.update_index()

    def is_over(self) -> bool:
        """True if no worker is alive and none is left to start."""
        if any(run.worker is not None for run in self.runs):
            return False
        return self.stop_signals > 0 or not any(run.is_startable() for run in self.runs)

    def statuses(self) -> list[RunStatus]:
        return [run.status() for run in self.runs]

    def start(self) -> None:
        free_slots = self.executor.slots - sum(run.worker is not None for run in self.runs)
        for run in self.runs:
            if free_slots > 0 and run.is_startable() and run.is_due():
                try:
                    run.folder.retry()  # an old BLOCKED would be taken for that of a worker that crashes at once
                    run.worker, run.stop_requested = self.executor.start(run.folder.path), False
                except DiskFull as error:
                    self.block(run, {"reason": str(error), "cause": "disk"})
                except JobError as error:
                    run.suspend(str(error))
                    self.log.write("not started", run=run.name, reason=str(error))
                else:
                    run.block = None
                    free_slots -= 1
                    self.log.write("started", run=run.name, pid=run.worker.pid)

    def stop(self) -> None:
        for run in self.runs:
            if run.worker is None:
                continue
            if self.stop_signals > 1:
                run.worker.kill()
            elif not run.stop_requested and run.worker.pid is not None:
                run.worker.stop()
                run.stop_requested = True

    def end(self, run: SupervisedRun, outcome: str) -> None:
        """Handle the end of a worker. The run's files take precedence over the exit code."""
        code = run.worker.code if run.worker else None
        run.worker = None
        ending = run.folder.ending()
        state = ending["state"] if ending else None
        self.log.write("ended", run=run.name, how=outcome, code=code, state=state)
        if state in ("finished", "failed", "diverged") or run.folder.is_held():
            return  # the run has ended, or another worker holds it and is adopted in this tick
        if state == "blocked" or code == ExitCode.BLOCKED:
            self.block(run, ending or {"reason": "the disk was full", "cause": "disk"})
        elif self.stop_signals:
            pass  # stopped or killed on request: interrupted, not failed
        elif code != ExitCode.STOPPED and free_bytes(run.folder.path) < run.required_bytes():
            # A full disk crashes a worker in many ways, none of which is the run's fault.
            reason = f"the worker ended early ({outcome}) and the disk that holds {run.folder.path} is almost full"
            self.block(run, {"reason": reason, "cause": "disk"})
        else:
            run.record_failure(f"the worker ended early ({outcome})", self.backoff_s)
            if run.failures > self.retries:
                self.give_up(run, code)

    def block(self, run: SupervisedRun, block: dict[str, Any]) -> None:
        run.block = block
        run.record_failure(block["reason"], self.backoff_s)
        if run.failures > self.retries:
            run.suspend(block["reason"])
        if run.folder.ending() is None:
            # The full disk may not even hold this file; the next supervisor then starts the run again.
            self.mark(run, "blocked", block)
        self.log.write("blocked", run=run.name, reason=block["reason"])

    def give_up(self, run: SupervisedRun, code: int | None) -> None:
        log_tail = run.folder.last_words()
        reason = f"{run.reason}, {run.failures} times in a row without getting further"
        run.suspend(reason)
        if code != ExitCode.STOPPED:  # a worker that is stopped from outside again and again has not failed
            last_line = f"; its log ends: {log_tail[-1]}" if log_tail else ""
            self.mark(run, "failed", {"reason": reason + last_line, "log": log_tail, "attempts": run.failures})
        self.log.write("given up", run=run.name, reason=reason)

    def mark(self, run: SupervisedRun, state: Literal["failed", "blocked"], content: dict[str, Any]) -> None:
        try:
            run.folder.mark(state, step=max(run.furthest, 0), **content)
        except JobError as error:
            self.log.write("not marked", run=run.name, state=state, reason=str(error))

    def update_index(self) -> None:
        # The index can be rebuilt at any time, so no problem with it may stop the training.
        try:
            problems: Mapping[str, str] = self.index.sync()
        except JobError as error:
            problems = {"index": str(error)}
        if problems != self.index_problems:
            self.index_problems = problems
            self.log.write("index", trouble=problems)
