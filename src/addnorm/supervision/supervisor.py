"""Supervision of a study: start its workers, restart those that crash, adopt those of an earlier supervisor.

The supervisor keeps no state of its own: finished, running and waiting runs are read from their folders. If the supervisor
is killed, its workers go on training and the next supervisor adopts them.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from addnorm.errors import AddnormError, JobError
from addnorm.store import Damaged, DiskFull, Index, Lock, RunFolder, RunStatus, State, StudyFolder
from addnorm.store.claim import Claims, InForce
from addnorm.store.files import DiskError
from addnorm.store.lines import LineWriter, Record
from addnorm.supervision.executors import Executor, WorkerState
from addnorm.supervision.stop_signals import StopSignals
from addnorm.supervision.supervised_run import SupervisedRun, free_bytes
from addnorm.training.exit_code import ExitCode
from addnorm.words import command_line


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
    other runs are training; a run blocked by anything else, or whose folder was removed, waits for the next call. The first
    Ctrl-C or SIGTERM asks the workers to write a checkpoint and stop, and waits for them; the second one kills them. A run
    with the file STOP is not started; the call removes the files that are there when it begins.

    Args:
        study: the study's folder.
        executor: starts the workers.
        on_tick: called with the status of every run after each update.
        retries: restarts after consecutive crashes without progress.
        backoff_s: wait before the first restart; it doubles with each further one.
        tick_s: time between two updates.
        again: states of ended runs ("failed", "diverged") that are resumed from their newest checkpoint.

    Returns:
        The status of every run at the end, with the reasons that no file holds.

    Raises:
        JobError: another supervisor works on the folder, on this host or another.
        DiskError: the supervisor's lock, claim or log cannot be written.
    """
    # Two guards, since neither is enough. The lock excludes every process of this kernel and needs no time to be seen
    # as free after a kill. The claim excludes another host, which may see the folder but not the lock, at the cost of
    # four beats of waiting after a crash. The lock first: it keeps two processes of one host from waiting for each
    # other's claims.
    lock = Lock(study.lock_path)
    if not lock.try_acquire():
        raise _second_supervisor(study, f"process {lock.held_by()}")
    try:
        claim = Claims(study.claims_path).acquire()
    except InForce as error:
        lock.release()
        raise _second_supervisor(study, f"process {error.holder.pid} on {error.holder.host}") from error
    except BaseException:
        lock.release()
        raise
    try:
        with SupervisorLog(study.path / "supervisor.jsonl") as log, StopSignals() as signals:
            supervisor = _Supervisor(study, executor, log, retries, backoff_s)
            for run in supervisor.runs:
                run.prepare(again)
            # One loop for everything: poll, end, adopt, start or stop, show. A worker is never waited for, so a signal
            # is heard within one tick, and a worker that hangs holds up nobody but its own run.
            while True:
                _keep(lock, study)
                supervisor.tick(signals.count)
                statuses = supervisor.statuses()
                on_tick(statuses)
                if supervisor.is_over():
                    return statuses
                signals.wait(tick_s)
    finally:
        claim.release()
        lock.release()


def _keep(lock: Lock, study: StudyFolder) -> None:
    """Take the lock again if its file was removed, which would let a second supervisor in."""
    if lock.is_lost():
        lock.release()
        try:
            if not lock.try_acquire():
                raise _second_supervisor(study, f"process {lock.held_by()}")
        except DiskError:
            pass  # the whole folder is gone; every run says so


def _second_supervisor(study: StudyFolder, holder: str) -> JobError:
    return JobError(
        f"{study.path}: expected no other supervisor, got {holder}. "
        f"Follow its progress with `{command_line('addnorm', 'status', study.path)}`, or stop it first."
    )


class SupervisorLog:
    """Append-only log with one JSON object per line: `time`, `supervisor` (process id), `type` and further values.

    Entries that cannot be written, as on a full disk, are kept in memory and written, in order, as soon as that is possible.
    If the file was removed or changed, a new writer continues what is there.

    Raises:
        DiskError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineWriter(path)
        self._pending: list[Record] = []

    def write(self, type: str, /, **values: Any) -> None:
        """Append one entry."""
        self._pending.append({"time": time.time(), "supervisor": os.getpid(), "type": type, **values})
        try:
            self._write_pending()
        except Damaged:
            with suppress(JobError):
                # The new writer first: if it cannot be opened, the old one stays, and the entries wait in memory for
                # the next try.
                lines = LineWriter(self._path)
                self._lines.close()
                self._lines = lines
                self._write_pending()
        except JobError:
            pass  # retried with the next entry; nothing about the log may end the supervisor

    def _write_pending(self) -> None:
        while self._pending:
            self._lines.append(self._pending[0])
            del self._pending[0]

    def __enter__(self) -> "SupervisorLog":
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()


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
        self.runs = [SupervisedRun(folder) for folder in study.all_runs()]
        for run in self.runs:
            run.update_progress()
        log.write("supervisor started", runs=len(self.runs))

    def tick(self, stop_signals: int) -> None:
        """Check every run once and start, adopt, restart or stop workers. `stop_signals`: number received so far."""
        self.stop_signals = stop_signals
        # Ends before adoptions before starts, and all in one tick. A worker that ended while another process took its
        # run over is first dropped, and then found by its claim; if runs were started in between, it would get a second
        # worker, which finds the run claimed and ends at once, in every tick.
        states = self.executor.poll([run.folder for run in self.runs if run.worker is not None])
        for run in self.runs:
            if run.name in states:
                run.worker_state = states[run.name]
                if run.worker_state.phase == "ended":
                    self.end(run)
        idle = [run for run in self.runs if run.worker is None and run.is_readable() and not run.is_over()]
        # Every tick, not only the first: a worker may have been started by hand, by a scheduler that queued it again,
        # or by a supervisor that died between starting it and recording anything. Runs that are over or cannot be read
        # are not asked for: whatever holds them is no worker of theirs.
        worker_ids = self.executor.find([run.folder for run in idle])
        for run in self.runs:
            if run.name in worker_ids:
                run.worker, run.worker_state = worker_ids[run.name], WorkerState(phase="working")
                self.log.write("adopted", run=run.name, **_named(run.worker))
        if stop_signals:
            self.stop()
        else:
            self.start()
        self.update_index()

    def is_over(self) -> bool:
        """True if no worker is alive and none is left to start."""
        if any(run.worker is not None for run in self.runs):
            return False
        # A run that waits for its back-off is startable, so the loop goes on; one that waits for space on a full disk
        # is startable once there is room. If only such runs are left, nothing will make room, and the command returns.
        return self.stop_signals > 0 or not any(run.is_startable() for run in self.runs)

    def statuses(self) -> list[RunStatus]:
        return [run.status() for run in self.runs]

    def start(self) -> None:
        due = {run.name: run for run in self.runs if run.is_startable() and run.is_due() and run.has_spec()}
        answers = self.executor.start([run.folder for run in due.values()]) if due else {}
        for name, answer in answers.items():
            run = due[name]
            # A start that the disk refuses is no crash of the run: it blocks, and goes on as soon as there is room. A
            # folder that is gone raises the same error, so the folder is looked at: a removed run must not be made
            # again.
            if isinstance(answer, DiskError) and run.is_readable():
                self.block(run, {"reason": str(answer), "cause": "disk" if isinstance(answer, DiskFull) else "write"})
            elif isinstance(answer, JobError):
                if run.is_readable():
                    run.suspend(str(answer))
                self.log.write("not started", run=name, reason=run.reason)
            else:
                run.block, run.worker, run.worker_state = None, answer, WorkerState(phase="working")
                self.log.write("started", run=name, **_named(answer))

    def stop(self) -> None:
        at_work = [run.folder for run in self.runs if run.worker is not None]
        if not at_work:
            return
        try:
            if self.stop_signals > 1:
                self.executor.kill(at_work)
            else:
                self.executor.stop(at_work)
        except JobError as error:  # tried again with the next tick
            self.log.write("not stopped", reason=str(error))

    def end(self, run: SupervisedRun) -> None:
        """Handle the end of a worker. The run's files take precedence over the exit code."""
        outcome, code = run.worker_state.note, run.worker_state.code
        run.worker = None
        if not run.is_readable():
            self.log.write("ended", run=run.name, how=outcome, code=code, reason=run.reason)
            return
        ending = run.folder.ending()
        state = ending["state"] if ending else None
        self.log.write("ended", run=run.name, how=outcome, code=code, state=state)
        # The files first, the exit code last: a worker may be killed right after DONE is written, or end with 0 and
        # leave nothing because a library called exit. What is on the disk is what the next command will see too.
        if state in ("finished", "failed", "diverged") or run.folder.is_held():
            return  # the run has ended, or another worker holds it and is adopted in this tick
        if state == "blocked" or code == ExitCode.BLOCKED:
            # Without BLOCKED, the disk has room for nothing, or refuses to write.
            self.block(run, ending or _last_reason(run.folder))
        elif self.stop_signals or run.folder.stop_path.exists():
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
        # Three things that must not be confused: the reason in memory, which shows the state although BLOCKED had no
        # room; the back-off, which counts blocks like crashes so that a disk that refuses for ever ends the tries; and
        # the file, which makes the next supervisor and every page say the same.
        run.block = block
        run.record_failure(block["reason"], self.backoff_s)
        if run.failures > self.retries:
            run.suspend(block["reason"])
        if run.folder.ending() is None:
            # The full disk may not even hold this file; the next supervisor then starts the run again.
            self.mark(run, "blocked", block)
        self.log.write("blocked", run=run.name, reason=block["reason"])

    def give_up(self, run: SupervisedRun, code: int | None) -> None:
        # Before `suspend`, which changes the reason. FAILED holds the tail of the log, because later attempts append to
        # the log, and its last line stands in the reason, which is all that a table has room for.
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
            # Damaged events of one run are an answer, not an exception: the other runs' points are added. The log gets
            # a line only when the problems change, or a damaged run would fill it with one line a second.
            problems: Mapping[str, str] = self.index.sync()
        except (AddnormError, OSError) as error:
            problems = {"index": str(error)}
        if problems != self.index_problems:
            self.index_problems = problems
            self.log.write("index", trouble=problems)


def _last_reason(run: RunFolder) -> dict[str, Any]:
    """Reason of a worker that could not write BLOCKED: it is the newest line of its log, if that has room."""
    reasons = [line for line in run.last_words() if line.startswith("blocked: ")]
    reason = reasons[-1].removeprefix("blocked: ") if reasons else "the disk could not be written"
    return {"reason": reason, "cause": "disk" if not reasons or "no room left" in reason else "write"}


def _named(worker: str) -> dict[str, Any]:
    """A worker's id for the log, and its process id if it is a process."""
    pid = worker.rpartition(":")[2]
    return {"worker": worker, **({"pid": int(pid)} if pid.isdecimal() else {})}
