"""Bring every run of a study to its end, whatever dies on the way.

The supervisor keeps nothing that it could not find again: which runs are done, alive or waiting is read from their
folders. Killed at any moment, its workers go on, and the next supervisor adopts them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from addnorm.errors import JobError
from addnorm.store import DiskFull, Index, Lock, RunStatus, State, StudyFolder
from addnorm.supervision.executors import Executor
from addnorm.supervision.journal import Journal
from addnorm.supervision.stop_signals import StopSignals
from addnorm.supervision.supervised_run import Care, free_bytes
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
    """Work on a study until no run can be brought further.

    Runs are started in plan order. One that crashes is started again; after `retries` more ends in a row that got no
    further it is marked FAILED with the last lines of its log. One that is blocked waits until its cause is gone: for a
    full disk as long as other runs are at work, for anything else until the next call. Ctrl-C (or SIGTERM) asks the
    workers to keep a checkpoint and stop, and waits for them; a second one kills them.

    Args:
        study: what to work on.
        executor: where.
        on_tick: called with every run's status after each look at them.
        retries: starts after a crash, without progress in between.
        backoff_s: wait before the first of them; doubles with each.
        tick_s: time between two looks.
        again: runs that ended in one of these states go on from their newest checkpoint: "failed", "diverged".

    Returns:
        Every run's status at the end.

    Raises:
        JobError: another supervisor is at work in the folder.
        DiskFull: there is no room for the supervisor's own log.
    """
    lock = Lock(study.lock_path)
    if not lock.try_acquire():
        raise JobError(
            f"one supervisor at a time: process {lock.held_by()} is at work in {study.path}. "
            f"Look at its progress with `addnorm status {study.path}`, or stop it first."
        )
    try:
        for run in study.runs():
            ending = run.ending()
            if ending is not None and ending["state"] in again:
                run.retry()
        with Journal(study.path / "supervisor.jsonl") as journal, StopSignals() as signals:
            supervisor = _Supervisor(study, executor, journal, retries, backoff_s)
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
        self, study: StudyFolder, executor: Executor, journal: Journal, retries: int, backoff_s: float
    ) -> None:
        self.executor = executor
        self.journal = journal
        self.retries = retries
        self.backoff_s = backoff_s
        self.index = Index(study.path)
        self.stops = 0
        self.index_trouble: Mapping[str, str] = {}
        self.cares = [Care(run) for run in study.runs()]
        for care in self.cares:
            care.look()
        journal.note("supervisor started", runs=len(self.cares))

    def tick(self, stops: int) -> None:
        """Look at every run once and do what is due. `stops`: stop signals so far."""
        self.stops = stops
        for care in self.cares:
            if care.worker is not None and (ended := care.worker.poll()) is not None:
                self.end(care, ended)
        for care in self.cares:
            if care.worker is None and care.run.is_held():
                care.worker, care.asked_to_stop = self.executor.adopt(care.run.path), False
                self.journal.note("adopted", run=care.run.name, pid=care.worker.pid)
        if stops:
            self.stop()
        else:
            self.start()
        self.sync()

    def is_over(self) -> bool:
        """Whether nothing lives and nothing is left to start."""
        if any(care.worker is not None for care in self.cares):
            return False
        return self.stops > 0 or not any(care.is_startable() for care in self.cares)

    def statuses(self) -> list[RunStatus]:
        return [care.status() for care in self.cares]

    def start(self) -> None:
        free = self.executor.slots - sum(care.worker is not None for care in self.cares)
        for care in self.cares:
            if free > 0 and care.is_startable() and care.is_due():
                try:
                    care.run.retry()  # else a worker that dies at once would seem to have written this BLOCKED
                    care.worker, care.asked_to_stop = self.executor.start(care.run.path), False
                except DiskFull as error:
                    self.block(care, {"reason": str(error), "cause": "disk"})
                except JobError as error:
                    care.set_aside(str(error))
                    self.journal.note("not started", run=care.run.name, reason=str(error))
                else:
                    care.waits_for = None
                    free -= 1
                    self.journal.note("started", run=care.run.name, pid=care.worker.pid)

    def stop(self) -> None:
        for care in self.cares:
            if care.worker is None:
                continue
            if self.stops > 1:
                care.worker.kill()
            elif not care.asked_to_stop and care.worker.pid is not None:
                care.worker.stop()
                care.asked_to_stop = True

    def end(self, care: Care, how: str) -> None:
        """A worker has ended: find out from the run's files, and only then from the exit code, what that means."""
        code = care.worker.code if care.worker else None
        care.worker = None
        ending = care.run.ending()
        state = ending["state"] if ending else None
        self.journal.note("ended", run=care.run.name, how=how, code=code, state=state)
        if state in ("finished", "failed", "diverged") or care.run.is_held():
            return  # nothing left to do, or another worker was there first and is adopted in this tick
        if state == "blocked" or code == ExitCode.BLOCKED:
            self.block(care, ending or {"reason": "the disk was full", "cause": "disk"})
        elif self.stops:
            pass  # asked to stop, or killed for not listening: interrupted, not failed
        elif code != ExitCode.STOPPED and free_bytes(care.run.path) < care.room_bytes():
            # A full disk kills in many ways, and a run must not be failed for it.
            reason = f"the worker ended early ({how}) and the disk that holds {care.run.path} is almost full"
            self.block(care, {"reason": reason, "cause": "disk"})
        else:
            care.fail(f"the worker ended early ({how})", self.backoff_s)
            if care.failures > self.retries:
                self.give_up(care, code)

    def block(self, care: Care, cause: dict[str, Any]) -> None:
        care.waits_for = cause
        care.fail(cause["reason"], self.backoff_s)
        if care.failures > self.retries:
            care.set_aside(cause["reason"])
        if care.run.ending() is None:
            # Its disk is full, so there may be no room for this file either; the next supervisor then tries again.
            self.mark(care, "blocked", cause)
        self.journal.note("blocked", run=care.run.name, reason=cause["reason"])

    def give_up(self, care: Care, code: int | None) -> None:
        words = care.run.last_words()
        reason = f"{care.reason}, {care.failures} times in a row without getting further"
        care.set_aside(reason)
        if code != ExitCode.STOPPED:  # a worker that keeps being stopped from outside has not failed
            last = f"; its log ends: {words[-1]}" if words else ""
            self.mark(care, "failed", {"reason": reason + last, "log": words, "attempts": care.failures})
        self.journal.note("given up", run=care.run.name, reason=reason)

    def mark(self, care: Care, state: Literal["failed", "blocked"], content: dict[str, Any]) -> None:
        try:
            care.run.mark(state, step=max(care.furthest, 0), **content)
        except JobError as error:
            self.journal.note("not marked", run=care.run.name, state=state, reason=str(error))

    def sync(self) -> None:
        # The index can be made again at any time, so no trouble with it may stop the training.
        try:
            trouble: Mapping[str, str] = self.index.sync()
        except JobError as error:
            trouble = {"index": str(error)}
        if trouble != self.index_trouble:
            self.index_trouble = trouble
            self.journal.note("index", trouble=trouble)
