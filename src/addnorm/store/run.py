"""Folder of a run (variant × seed): all that is stored about it.

    spec.json            frozen specification          events.jsonl   events, appended by the worker
    env.json             versions, device, threads     log.txt        output of the worker
    lock                 held while a worker lives     checkpoints/   the newest two
    claims/              who trains the run            STOP           asks the worker to stop
    final.safetensors    final weights                 DONE | FAILED | BLOCKED
    .reserve             room for a reason on a full disk

The state of a run is derived, not stored: finished with `DONE` and the events of its last step; failed or diverged with
`FAILED`; blocked with `BLOCKED`, or if a file cannot be read; otherwise running if the lock is held or a worker of another
host has the claim, interrupted if there are events, and queued if there are none. A crash therefore cannot leave a wrong
state. Any file may be removed or cut short at any time, also by the user: `spec.json` is written again from the plan, a
`DONE` that was cut short says nothing, and without its events no run is finished.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError, InputError, JobError
from addnorm.store import ending as endings
from addnorm.store.claim import Claim, Claims, Holder, InForce
from addnorm.store.ending import Ending
from addnorm.store.events import Event, EventWriter
from addnorm.store.files import MISSING, Damaged, disk_error, read_json, remove, sync, write_json
from addnorm.store.follower import NewestEvents
from addnorm.store.lock import Lock, is_held
from addnorm.store.status import RunStatus, State

_LOG_LINES, _LOG_BYTES = 20, 16384
_UNCOMPILED = "no: "
"""Before the reason, in `compile` of env.json."""
_SPEC_FIELDS = ("run", "variant", "seed", "steps")


class NotClaimed(JobError):
    """A worker claimed a run that must not be trained now; `state` is the reason: running, finished, failed, diverged."""

    def __init__(self, path: Path, state: State, by: str | None) -> None:
        who = f" by {by}" if by is not None else ""
        super().__init__(f"{path} is {state}{who}: expected a run that has no worker and has not ended.")
        self.state: State = state


class Removed(JobError):
    """The folder of a run, or the lock in it, was removed while a worker trained the run."""


class RunFolder:
    """Folder of a run. Creating this object reads nothing.

    Args:
        path: the folder.
        spec: content of `spec.json`, if already known.

    Example:
        >>> run = addnorm.open_runs("runs/first").runs()[0]  # doctest: +SKIP
        >>> run.status().state  # doctest: +SKIP
        'finished'
    """

    def __init__(self, path: str | Path, spec: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        self._spec = spec
        self.events_path, self.log_path = self.path / "events.jsonl", self.path / "log.txt"
        self.checkpoints_path, self.final_path = self.path / "checkpoints", self.path / "final.safetensors"
        self._newest = NewestEvents(self.events_path)
        self._claims = Claims(self.path / "claims")
        self._claim: Claim | None = None
        self._lock: Lock | None = None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name

    @property
    def spec(self) -> dict[str, Any]:
        """Content of `spec.json`: `run`, `variant`, `seed`, `steps` and the further fields of the plan.

        Raises:
            InputError, Damaged: `spec.json` is missing or damaged.
        """
        if self._spec is None:
            self._spec = self._stored_spec()
        return self._spec

    def _stored_spec(self) -> dict[str, Any]:
        path = self.path / "spec.json"
        content = read_json(path)
        missing = [name for name in _SPEC_FIELDS if not isinstance(content, dict) or name not in content]
        if missing:
            raise Damaged(f"{path} is damaged: it lacks {', '.join(missing)}. Restore it from a copy.")
        return dict(content)

    def write_spec(self) -> None:
        """Write `spec.json` from the plan, unless it is there and whole. For a folder that was opened by its study.

        Raises:
            DiskError: the file cannot be written.
            JobError: the file that is there cannot be read.
        """
        try:
            self._stored_spec()
        except (InputError, Damaged):
            write_json(self.path / "spec.json", self.spec)

    @property
    def is_removed(self) -> bool:
        """True if there is no such folder."""
        return not self.path.is_dir()

    @property
    def env(self) -> dict[str, Any] | None:
        """Versions, device and threads of the newest attempt; None before the first.

        Raises:
            Damaged: `env.json` is damaged.
        """
        path = self.path / "env.json"
        content: dict[str, Any] | None = read_json(path) if path.exists() else None
        return content

    def write_env(self, env: dict[str, Any]) -> None:
        """Write versions, device and threads of this attempt.

        Raises:
            InputError, DiskFull, JobError: as `write_json`.
        """
        write_json(self.path / "env.json", env)

    def is_held(self) -> bool:
        """True while a worker lives, here or on another host."""
        return is_held(self.path / "lock") or self._claims.held_elsewhere() is not None

    def worker(self) -> int | None:
        """Process id of the worker of this host, or None."""
        # Both must agree before a signal is sent to that number: process ids are used again, and a wrong one is
        # somebody else's process.
        pid, newest = Lock(self.path / "lock").held_by(), self._claims.newest()
        # Over a network file system, the lock and the number in it may be another host's; the claim tells whose they are.
        return pid if newest is None or (newest[1].is_here and newest[1].pid == pid) else None

    def holder(self) -> Holder | None:
        """The living worker with its id and host; None if there is none, or if it has not made its claim yet."""
        if is_held(self.path / "lock"):
            return self.newest_holder()
        return self._claims.held_elsewhere()

    def newest_holder(self) -> Holder | None:
        """The worker that made the newest claim, living or not; None before the first."""
        newest = self._claims.newest()
        return newest[1] if newest is not None else None

    def claims_made(self) -> int:
        """Number of the newest claim; it grows with every worker that begins."""
        newest = self._claims.newest()
        return newest[0] if newest is not None else 0

    def is_superseded(self) -> bool:
        """True if this process has claimed the run and another one has since, because this one gave no sign of life."""
        return self._claim is not None and self._claim.is_superseded()

    def require_claim(self) -> None:
        """Make sure, once in each step, that this process's claim still stands. The last beat has looked for a newer one.

        Raises:
            Removed: the run's folder was removed, or its lock, which then keeps no other worker away.
            JobError: another worker has taken the run over.
        """
        if self._lock is not None and self._lock.is_lost():
            raise Removed(f"{self.path} was removed, or the lock in it, while the run was trained.")
        if self._claim is not None and self._claim.lost:
            raise JobError(f"{self.path}: expected claim {self._claim.number} to be the newest, got a newer one.")

    @property
    def stop_path(self) -> Path:
        """The file that asks the worker to stop, wherever it is."""
        return self.path / "STOP"

    def request_stop(self) -> None:
        """Ask the worker to save a checkpoint and stop, by the file STOP. A run with that file is not started.

        Raises:
            DiskError: the file cannot be written.
        """
        try:
            self.stop_path.touch()
        except MISSING:
            pass  # the folder was removed, and its worker ends by itself
        except OSError as error:
            raise disk_error(error, self.stop_path) from error

    def allow_start(self) -> None:
        """Remove the file STOP.

        Raises:
            JobError: the file cannot be removed.
        """
        remove(self.stop_path)

    @contextmanager
    def claim(self) -> Iterator[EventWriter]:
        """Claim the run during the block and open its events for a new attempt.

        Raises:
            NotClaimed: another worker has the run, or it is finished, failed or diverged.
            DiskFull, JobError: the folder cannot be written.
        """
        lock = Lock(self.path / "lock")
        if not lock.try_acquire():
            holder = lock.held_by()
            raise NotClaimed(self.path, "running", None if holder is None else f"process {holder}")
        # From here on in one order, which is undone in reverse: lock (nobody of this kernel), ending (nothing to do),
        # claim (nobody anywhere), block lifted, leftovers of killed writers removed, room reserved, events opened,
        # which cuts a torn line off. Each step may rely on those before it: without the claim, the temporary files
        # could be those of a living worker.
        self._lock = lock
        try:
            ended = self.ending()
            if ended is not None and ended["state"] != "blocked":
                raise NotClaimed(self.path, ended["state"], None)
            try:
                # The number of the claim is the number of the attempt. It must exceed every attempt in the events, also
                # where the folder `claims` was lost: events of two attempts of one number could not be told apart after
                # a resume.
                self._claim = self._claims.acquire(self.attempts() + 1)
            except InForce as error:
                by = f"worker {error.holder.worker} on {error.holder.host}"
                raise NotClaimed(self.path, "running", by) from error
            try:
                endings.lift_block(self.path)
                for temporary in (*self.path.glob(".*.tmp"), *self.checkpoints_path.glob(".*.tmp")):
                    remove(temporary)  # of writers that were killed
                endings.make_reserve(self.path)
                with EventWriter(self.events_path, attempt=self._claim.number) as events:
                    yield events
                    # Before the claim ends: whoever takes the run over next must find every event that this worker
                    # reported.
                    events.sync()
            finally:
                self._claim.release()
        finally:
            self._claim = self._lock = None
            lock.release()

    def mark(self, state: Ending, *, reason: str | None = None, step: int, **values: Any) -> None:
        """End the run: flush the events, then write DONE, FAILED or BLOCKED.

        Args:
            state: state of the run from now on.
            reason: why, where there is a reason.
            step: last completed step.
            **values: further content of the marker file.

        Raises:
            InputError, DiskError: as `write_json`.
        """
        try:
            sync(self.events_path)
        except MISSING:
            pass
        except OSError as error:
            raise disk_error(error, self.events_path) from error
        content = {"state": state, "reason": reason, "step": step, "time": time.time(), **values}
        endings.write_ending(self.path, state, content)

    def retry(self) -> None:
        """Allow a failed, diverged or blocked run to continue from its newest checkpoint."""
        remove(self.path / endings.MARKERS["failed"])
        endings.lift_block(self.path)

    def ending(self) -> dict[str, Any] | None:
        """Content of DONE, FAILED or BLOCKED, always with `state` and `reason`; None without any (see `read_ending`).

        Raises:
            JobError: one of them cannot be read.
        """
        return endings.read_ending(self.path)

    def attempts(self) -> int:
        """Number of the newest attempt that has written an event; 0 before the first.

        Raises:
            Damaged: the newest event is damaged.
        """
        last = self._newest.look().last
        return int(last.get("attempt", 0)) if last else 0

    def last_event(self) -> Event | None:
        """Newest event.

        Raises:
            Damaged: its line is damaged.
        """
        return self._newest.look().last

    def newest(self, type: str) -> Event | None:
        """Newest event of a type.

        Args:
            type: "train" or "eval".

        Raises:
            Damaged: the newest events are damaged.
        """
        return self._newest.look().of_type.get(type)

    def last_words(self) -> list[str]:
        """Last lines of the worker's log."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, log.seek(0, 2) - _LOG_BYTES))
                return log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
        except OSError:
            return []  # no worker has started yet

    def status(self) -> RunStatus:
        """State and newest numbers. With a file that is damaged, not read, or another run's, the state is `blocked`.

        Raises:
            InputError, Damaged: the spec is missing or damaged.
        """
        spec = self.spec
        trouble = reason = ending = None
        held, newest = False, NewestEvents(self.events_path)
        try:
            ending, held = self.ending(), self.is_held()
            # A worker writes its ending before it lets the lock go. Read in the order ending, lock, a run that ends
            # between the two calls would look like one without ending and without worker, that is interrupted.
            if ending is None and not held:
                ending = self.ending()  # the worker may have written it and ended between the two calls
            newest = self._newest.look()
        except (JobError, OSError) as error:
            trouble = str(error)
        if ending is not None and ending["state"] == "finished":
            last_evaluation = newest.of_type.get("eval")
            # DONE alone does not make a run finished: the ranking reads the evaluation of the last step, and a number
            # of an earlier step in its place would be a wrong result rather than a missing one.
            if last_evaluation is None or last_evaluation["step"] != spec["steps"]:
                trouble = endings.missing_record(self.path, trouble)
            trouble = trouble or endings.other_run(self.path, spec["run"])
            reason = endings.missing_weights(self.final_path, ending)
        state: State
        if trouble is not None and (ending is None or ending["state"] == "finished"):
            state, reason = "blocked", trouble
        elif ending is not None:
            state, reason = ending["state"], reason or ending["reason"]
        elif held:
            state = "running"
        else:
            state = "interrupted" if newest.last else "queued"
            if (self.path / endings.MARKERS["finished"]).exists():
                reason = endings.DAMAGED_DONE
        evaluation, last = newest.of_type.get("eval", {}), newest.last or {}
        loss = evaluation.get("loss", newest.of_type.get("train", {}).get("loss"))
        return RunStatus(
            run=spec["run"],
            variant=spec["variant"],
            seed=spec["seed"],
            state=state,
            step=int(last.get("step", 0)),
            steps=spec["steps"],
            loss=_finite(loss),
            accuracy=_finite(evaluation.get("accuracy")),
            perplexity=_finite(evaluation.get("perplexity")),
            attempts=max(int(last.get("attempt", 0)), _whole((ending or {}).get("attempts"))),
            reason=reason,
            uncompiled=self._uncompiled(),
        )

    def _uncompiled(self) -> str | None:
        """Reason why the newest attempt trains uncompiled; None if it does not, or was not asked to be compiled."""
        try:
            if not self.spec["spec"]["training"]["compile"]:
                return None
            compiled = str((self.env or {})["compile"])
        except (KeyError, TypeError, AddnormError):
            return None  # a plan without a training, or an attempt that has not got so far
        return compiled.removeprefix(_UNCOMPILED) if compiled.startswith(_UNCOMPILED) else None

    def write_compiled(self, reason: str | None) -> None:
        """Write whether this attempt trains a compiled model, or the reason why it does not.

        Raises:
            InputError, DiskFull, JobError: as `write_json`.
        """
        self.write_env({**(self.env or {}), "compile": "yes" if reason is None else f"{_UNCOMPILED}{reason}"})


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
