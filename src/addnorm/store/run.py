"""One run's folder: variant × seed, everything that is known about it, and nothing kept elsewhere.

    spec.json            what to do, frozen            events.jsonl   what happened
    env.json             where it was done             log.txt        the worker's own words
    lock                 held while a worker lives     checkpoints/   the newest two
    final.safetensors    the result's weights          DONE | FAILED | BLOCKED

A run's state is not stored but derived: `DONE` finished; `FAILED` failed or diverged; `BLOCKED` blocked; else the lock
is held: running; else there are events: interrupted; else queued. So no crash can leave a wrong state behind.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from addnorm.errors import JobError
from addnorm.store.events import Event, EventWriter
from addnorm.store.files import Damaged, disk_error, read_json, sync, write_json
from addnorm.store.follower import NewestEvents
from addnorm.store.lock import Lock, is_held
from addnorm.store.status import RunStatus, State

Ending = Literal["finished", "failed", "diverged", "blocked"]

_LOG_LINES, _LOG_BYTES = 20, 16384
_MARKERS: dict[Ending, str] = {"finished": "DONE", "failed": "FAILED", "diverged": "FAILED", "blocked": "BLOCKED"}


_SPEC_FIELDS = ("run", "variant", "seed", "steps")


class NotClaimed(JobError):
    """A worker came to a run that is not to be worked on: `state` says why (running, finished, failed, diverged)."""

    def __init__(self, path: Path, state: State, by: int | None) -> None:
        who = f" by process {by}" if by is not None else ""
        super().__init__(f"{path} is {state}{who}: a second worker has nothing to do there.")
        self.state: State = state


class RunFolder:
    """A run's folder. Making this object reads nothing.

    Args:
        path: the folder.
        spec: what `spec.json` holds, where it is known already.
    """

    def __init__(self, path: str | Path, spec: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        self._spec = spec
        self._newest = NewestEvents(self.events_path)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def events_path(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def final_path(self) -> Path:
        return self.path / "final.safetensors"

    @property
    def spec(self) -> dict[str, Any]:
        """What to do: `run`, `variant`, `seed`, `steps` and all that the plan adds.

        Raises:
            InputError, Damaged: `spec.json` is missing or damaged.
        """
        if self._spec is None:
            path = self.path / "spec.json"
            found = read_json(path)
            missing = [name for name in _SPEC_FIELDS if not isinstance(found, dict) or name not in found]
            if missing:
                raise Damaged(f"{path} is damaged: it lacks {', '.join(missing)}. Restore it from a copy.")
            self._spec = found
        return self._spec

    @property
    def env(self) -> dict[str, Any] | None:
        """Where the newest attempt ran; None before the first.

        Raises:
            Damaged: `env.json` is damaged.
        """
        path = self.path / "env.json"
        found: dict[str, Any] | None = read_json(path) if path.exists() else None
        return found

    def write_env(self, env: dict[str, Any]) -> None:
        """Keep where this attempt runs: versions, device, threads.

        Raises:
            InputError, DiskFull, JobError: as `write_json`.
        """
        write_json(self.path / "env.json", env)

    def is_held(self) -> bool:
        """Whether a worker lives."""
        return is_held(self.path / "lock")

    def worker(self) -> int | None:
        """Process id of the living worker, or None."""
        return Lock(self.path / "lock").held_by()

    @contextmanager
    def claim(self) -> Iterator[EventWriter]:
        """Be this run's one worker for the length of the block: take the lock, open the events for a new attempt.

        Raises:
            NotClaimed: another worker has it, or there is nothing left to do.
            DiskFull, JobError: the folder cannot be written.
        """
        lock = Lock(self.path / "lock")
        if not lock.try_acquire():
            raise NotClaimed(self.path, "running", lock.held_by())
        try:
            ended = self.ending()
            if ended is not None and ended["state"] != "blocked":
                raise NotClaimed(self.path, ended["state"], None)
            self._remove("blocked")
            self._sweep()
            with EventWriter(self.events_path, attempt=self.attempts() + 1) as events:
                yield events
                events.sync()
        finally:
            lock.release()

    def mark(self, state: Ending, *, reason: str | None = None, step: int, **values: Any) -> None:
        """End the run: write DONE, FAILED or BLOCKED. The events are made safe first.

        Raises:
            InputError, DiskFull, JobError: as `write_json`.
        """
        if self.events_path.exists():
            try:
                sync(self.events_path)
            except OSError as error:
                raise disk_error(error, self.events_path) from error
        content = {"state": state, "reason": reason, "step": step, "time": time.time(), **values}
        write_json(self.path / _MARKERS[state], content)

    def retry(self) -> None:
        """Let a failed, diverged or blocked run be worked on again, from its newest checkpoint."""
        self._remove("failed")
        self._remove("blocked")

    def ending(self) -> dict[str, Any] | None:
        """What DONE, FAILED or BLOCKED holds (always with `state` and `reason`); None if there is none of them."""
        for state in ("finished", "failed", "blocked"):
            path = self.path / _MARKERS[state]
            if path.exists():
                try:
                    content = read_json(path)
                    return {"reason": None, "step": 0, **content, "state": content.get("state", state)}
                except (Damaged, AttributeError, TypeError):
                    # Made by hand (`touch DONE`): its being there is the statement.
                    return {"state": state, "reason": f"{path.name} holds no reason", "step": 0}
        return None

    def attempts(self) -> int:
        """Number of the newest attempt that wrote an event; 0 before the first.

        Raises:
            Damaged: the newest event is damaged.
        """
        last = self._newest.look().last
        return int(last.get("attempt", 0)) if last else 0

    def last_event(self) -> Event | None:
        """The newest event.

        Raises:
            Damaged: it is damaged.
        """
        return self._newest.look().last

    def newest(self, type: str) -> Event | None:
        """The newest event of that type.

        Raises:
            Damaged: the newest events are damaged.
        """
        return self._newest.look().of_type.get(type)

    def last_words(self) -> list[str]:
        """The last lines of the worker's log."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, log.seek(0, 2) - _LOG_BYTES))
                return log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
        except OSError:
            return []  # a worker that never started has no log

    def status(self) -> RunStatus:
        """The run's state and newest numbers. A damaged file makes it `blocked`, with the reason.

        Raises:
            InputError, Damaged: the spec is missing or damaged.
        """
        spec = self.spec
        ending, held = self.ending(), self.is_held()
        if ending is None and not held:
            ending = self.ending()  # the worker may have written it and left between the two looks
        try:
            newest = self._newest.look()
        except Damaged as damage:
            newest = NewestEvents(self.events_path)
            ending = ending or {"state": "blocked", "reason": str(damage), "step": 0}
        state: State
        if ending is not None:
            state = ending["state"]
        elif held:
            state = "running"
        else:
            state = "interrupted" if newest.last else "queued"
        found = newest.of_type.get("eval", {})
        loss = found.get("loss", newest.of_type.get("train", {}).get("loss"))
        last = newest.last or {}
        return RunStatus(
            run=spec["run"],
            variant=spec["variant"],
            seed=spec["seed"],
            state=state,
            step=int(last.get("step", 0)),
            steps=spec["steps"],
            loss=_finite(loss),
            accuracy=_finite(found.get("accuracy")),
            perplexity=_finite(found.get("perplexity")),
            attempts=max(int(last.get("attempt", 0)), int((ending or {}).get("attempts", 0))),
            reason=ending["reason"] if ending else None,
        )

    def _sweep(self) -> None:
        """Remove what writers that were killed left half written."""
        for left in (*self.path.glob(".*.tmp"), *self.checkpoints_path.glob(".*.tmp")):
            try:
                left.unlink(missing_ok=True)
            except OSError as error:
                raise disk_error(error, left) from error

    def _remove(self, state: Ending) -> None:
        path = self.path / _MARKERS[state]
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, path) from error


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
