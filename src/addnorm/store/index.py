"""An SQLite index over the runs' events. The files are the truth; the index only makes reading them fast.

One writer, the supervisor, calls `sync` at every tick: it takes in the bytes that were added to each `events.jsonl`
since the last time, and the place it came to is stored in the same transaction as the rows. So a crash between two
ticks is a tick that did not happen.

Readers never depend on it. They take the rows they find and then read the rest of the file from the stored place on;
without an index that they can open (deleted, damaged, another version, a folder that is not writable and so cannot hold
SQLite's shared memory) they read the file from its start. The answer is the same, only slower; nothing is lost in
silence.

A metric is a number in an event, named `type.field`: `train.loss`, `eval.accuracy`. True and false, texts and nested
values are not metrics. SQLite has no NaN: it is stored as NULL and read back as NaN.
"""

import hashlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from addnorm.errors import JobError
from addnorm.store.events import Event
from addnorm.store.files import Damaged, DiskFull
from addnorm.store.follower import EventFollower
from addnorm.store.lock import Lock
from addnorm.store.migrations import MIGRATIONS, migrate, transaction, version
from addnorm.store.study import StudyFolder

_UNUSABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
_CURVE = "SELECT attempt, step, value FROM points WHERE run = ? AND attempt = ? AND metric = ?"
_THINNED = (
    "SELECT (step - :first) / :stretch, max(step), sum(value), count(value) FROM points "
    "WHERE run = :run AND attempt = :attempt AND metric = :metric AND step BETWEEN :first AND :last "
    "GROUP BY (step - :first) / :stretch"
)
# Two questions, because SQLite answers each from one end of the primary key, but one with both from all of the run's rows.
_ATTEMPTS = "SELECT (SELECT min(attempt) FROM points WHERE run = ?1), (SELECT max(attempt) FROM points WHERE run = ?1)"
_METRICS = "SELECT DISTINCT metric FROM points WHERE run = ?"

Point = tuple[int, str, int, float]
"""attempt, metric, step, value"""


class Index:
    """The index of a study's folder. Making this object opens nothing.

    Args:
        out: the study's folder.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.path = self.out / "index.db"
        self._checked = False

    def sync(self) -> dict[str, str]:
        """Take in what the runs have written since the last time. Only for the holder of the supervisor's lock.

        An index that is missing, damaged or of another version is made anew.

        Returns:
            Runs whose events are damaged, each with the reason. What comes after the damage is not taken in.

        Raises:
            InputError: the folder holds no study.
            DiskFull, JobError: the index cannot be written. The runs' files are not affected.
        """
        runs = {run.name: run.events_path for run in StudyFolder(self.out).runs()}
        try:
            return self._sync(runs)
        except sqlite3.Error as error:
            if not _is_unusable(error):
                raise self._refused(error) from error
        self._delete()
        try:
            return self._sync(runs)
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def rebuild(self) -> dict[str, str]:
        """Make the index anew from the files, whatever state it is in.

        Returns:
            As `sync`.

        Raises:
            InputError: the folder holds no study.
            DiskFull, JobError: the index cannot be written, or a supervisor (which keeps it up to date) is at work.
        """
        lock = Lock(self.out / "supervisor.lock")
        if not lock.try_acquire():
            raise JobError(
                f"process {lock.held_by()} is at work in {self.out} and keeps its index up to date. "
                "Rebuild it when that process has ended."
            )
        try:
            self._clear()
            return self.sync()
        finally:
            lock.release()

    def curve(self, run: str, metric: str) -> list[tuple[int, float]]:
        """A metric over a run's steps, in order of step, one value per step: the newest attempt's.

        A step that was replayed after a resume therefore counts once.

        Raises:
            Damaged: the part of the events that the index does not hold is damaged.
        """

        def stored(database: sqlite3.Connection) -> list[Any]:
            first, last = database.execute(_ATTEMPTS, (run,)).fetchone()
            attempts = range(first, last + 1) if first is not None else ()
            # Attempt by attempt, so that the primary key finds the metric without passing over the others.
            return [row for attempt in attempts for row in database.execute(_CURVE, (run, attempt, metric))]

        rows, end = self._stored(run, stored)
        newest = {step: (attempt, math.nan if value is None else value) for attempt, step, value in rows}
        for attempt, name, step, value in self._points_after(run, end):
            if name == metric and attempt >= newest.get(step, (0, 0.0))[0]:
                newest[step] = (attempt, value)
        return [(step, newest[step][1]) for step in sorted(newest)]

    def thinned(self, run: str, metric: str, *, first: int, last: int, parts: int) -> list[tuple[int, float]]:
        """A metric over the steps from `first` to `last`, as means over that many stretches of equal length at most.

        Each mean stands at the last step of its stretch that has a value. Where no two values share a stretch, these
        are the values themselves. Values that are not finite are left out. What `curve` reads row by row is added up
        by the database here, so that a hundred long runs can be drawn at once.

        Raises:
            Damaged: the part of the events that the index does not hold is damaged.
        """
        stretch = max(1, -(-(last - first + 1) // parts))
        asked = {"run": run, "metric": metric, "first": first, "last": last, "stretch": stretch}

        attempts: set[int] = set()

        def stored(database: sqlite3.Connection) -> list[Any]:
            lowest, highest = database.execute(_ATTEMPTS, (run,)).fetchone()
            if lowest is None:
                return []
            attempts.update((lowest, highest))
            return database.execute(_THINNED, {**asked, "attempt": lowest}).fetchall()

        rows, end = self._stored(run, stored)
        fresh = list(self._points_after(run, end))
        attempts.update(point[0] for point in fresh)
        if len(attempts) > 1:  # steps that were replayed count once, and it takes `curve` to see which
            pairs, rows = self.curve(run, metric), []
        else:
            pairs = [(step, value) for _, name, step, value in fresh if name == metric]
        sums = {part: (step, total or 0.0, count) for part, step, total, count in rows}
        for step, value in pairs:
            if first <= step <= last and math.isfinite(value):
                before = sums.get((step - first) // stretch, (0, 0.0, 0))
                sums[(step - first) // stretch] = (max(step, before[0]), before[1] + value, before[2] + 1)
        return [(step, total / count) for _, (step, total, count) in sorted(sums.items()) if count]

    def metrics(self, run: str) -> list[str]:
        """Names of the metrics that a run has, sorted.

        Raises:
            Damaged: the part of the events that the index does not hold is damaged.
        """
        rows, end = self._stored(run, lambda database: database.execute(_METRICS, (run,)).fetchall())
        return sorted({name for (name,) in rows} | {point[1] for point in self._points_after(run, end)})

    def _clear(self) -> None:
        # Emptied where possible, because a reader may have the file open; deleted where it is of no use to anybody.
        try:
            with closing(self._open_to_write()) as database, transaction(database):
                database.execute("DELETE FROM points")
                database.execute("DELETE FROM sources")
        except sqlite3.Error as error:
            if not _is_unusable(error):
                raise self._refused(error) from error
            self._delete()

    def _sync(self, runs: dict[str, Path]) -> dict[str, str]:
        damage: dict[str, str] = {}
        with closing(self._open_to_write()) as database:
            for run, events in runs.items():
                try:
                    _add_new_events(database, run, events)
                except Damaged as error:
                    damage[run] = str(error)
        return damage

    def _open_to_write(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            migrate(database)
            if self._checked:
                return database
            self._checked = True
            if database.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                return database
        except BaseException:
            database.close()
            raise
        database.close()
        self._delete()
        return self._open_to_write()

    def _stored(self, run: str, ask: Callable[[sqlite3.Connection], list[Any]]) -> tuple[list[Any], int]:
        """Rows of the index, and how far into the run's events they reach; nothing and 0 without a usable index."""
        events = self.out / run / "events.jsonl"
        head = _head(events)
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True)) as database:
                database.execute("BEGIN")
                source = database.execute("SELECT head, end_byte FROM sources WHERE run = ?", (run,)).fetchone()
                if version(database) != len(MIGRATIONS) or source is None or source[0] != head:
                    return [], 0
                return (ask(database), source[1]) if EventFollower(events, source[1]).is_continued else ([], 0)
        except sqlite3.Error:
            return [], 0  # whatever is wrong with the index, the files hold the whole answer

    def _points_after(self, run: str, end: int) -> Iterator[Point]:
        yield from _points(EventFollower(self.out / run / "events.jsonl", end).read())

    def _delete(self) -> None:
        for suffix in ("-wal", "-shm", ""):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _refused(self, error: sqlite3.Error) -> JobError:
        said = (
            f"could not write {self.path} ({error}). The runs' files are whole; the index is made up from them later."
        )
        if _code(error) == sqlite3.SQLITE_FULL:
            return DiskFull(f"{said} Free some space on that disk.")
        return JobError(f"{said} See that the folder is writable and that no other process writes the index.")


def _add_new_events(database: sqlite3.Connection, run: str, path: Path) -> None:
    """Add the events that were appended since the last time, batch by batch, each with the position it reaches."""
    head = _head(path)
    source = database.execute("SELECT head, end_byte FROM sources WHERE run = ?", (run,)).fetchone()
    follower = EventFollower(path, 0 if source is None else source[1])
    if source is not None and not (source[0] == head and follower.is_continued):  # another file took this one's place
        with transaction(database):
            database.execute("DELETE FROM points WHERE run = ?", (run,))
            database.execute("DELETE FROM sources WHERE run = ?", (run,))
        follower.restart()
    for events in follower.chunks():
        with transaction(database):
            database.executemany(
                "INSERT OR REPLACE INTO points (run, attempt, metric, step, value) VALUES (?, ?, ?, ?, ?)",
                ((run, *point) for point in _points(events)),
            )
            database.execute(
                "INSERT OR REPLACE INTO sources (run, head, end_byte) VALUES (?, ?, ?)", (run, head, follower.position)
            )


def _points(events: Iterable[Event]) -> Iterator[Point]:
    for event in events:
        attempt, kind, step = event["attempt"], event["type"], event["step"]
        for name, value in event.items():
            if (
                name not in ("time", "attempt", "step")
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            ):
                yield attempt, f"{kind}.{name}", step, float(value) + 0.0  # as SQLite, which drops the sign of zero


def _head(path: Path) -> str:
    """What tells this events file from one that took its place: its first line, which holds the time of its start."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.readline()).hexdigest()
    except FileNotFoundError:
        return ""


def _is_unusable(error: sqlite3.Error) -> bool:
    return _code(error) in _UNUSABLE


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
