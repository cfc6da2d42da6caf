"""SQLite index over the events of all runs. The event files are authoritative; the index only makes reading them fast.

One writer, the supervisor, calls `sync` at every tick. It adds the events that were appended to each `events.jsonl` since the
last tick, and stores the position that it reached in the same transaction as the rows. A crash therefore loses at most the
work of one tick, which the next one repeats.

Readers do not depend on the index. They combine its rows with the events after the stored position; without a usable index
(deleted, damaged, of another version, or in a folder without write permission, which SQLite's shared memory requires) they
read the events from the start. The result is the same, only slower.

A metric is a number in an event and is named `type.field`: `train.loss`, `eval.accuracy`. Booleans, strings and nested values
are not metrics. `eval.loss` is on the text of all evaluations also where the last one was on more (`on_curve_text`). SQLite
has no NaN: it is stored as NULL and read back as NaN.
"""

import hashlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from addnorm.errors import JobError
from addnorm.statistics.measure import perplexity
from addnorm.store.events import Event
from addnorm.store.files import Damaged, DiskFull
from addnorm.store.follower import EventFollower
from addnorm.store.lock import Lock
from addnorm.store.migrations import MIGRATIONS, migrate, transaction, version
from addnorm.store.study import StudyFolder

_UNUSABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
_CURVE = "SELECT attempt, step, value FROM points WHERE run = ? AND attempt = ? AND metric = ?"
_THINNED = (
    "SELECT (step - :first) / :width, max(step), sum(value), count(value) FROM points "
    "WHERE run = :run AND attempt = :attempt AND metric = :metric AND step BETWEEN :first AND :last "
    "GROUP BY (step - :first) / :width"
)
_NEIGHBOURS = (
    "SELECT step, value FROM (SELECT step, value FROM points WHERE run = :run AND attempt = :attempt AND metric = :metric "
    "AND step < :first AND value IS NOT NULL ORDER BY step DESC LIMIT 1) UNION ALL "
    "SELECT step, value FROM (SELECT step, value FROM points WHERE run = :run AND attempt = :attempt AND metric = :metric "
    "AND step > :last AND value IS NOT NULL ORDER BY step LIMIT 1)"
)
# Two subqueries: SQLite answers each from one end of the primary key, but min and max in one query scan all rows of the run.
_ATTEMPTS = "SELECT (SELECT min(attempt) FROM points WHERE run = ?1), (SELECT max(attempt) FROM points WHERE run = ?1)"
_METRICS = "SELECT DISTINCT metric FROM points WHERE run = ?"

Point = tuple[int, str, int, float]
"""attempt, metric, step, value"""


def on_curve_text(event: Event) -> Event:
    """The event with its loss and perplexity on the text of all evaluations of its run, where it also has them of more text.

    Rankings take the loss on all text; on a curve, the change of text would look like one of the model.
    """
    text = event.get("text")
    if not isinstance(text, Mapping) or not isinstance(text.get("curve_loss"), float):
        return event
    loss = text["curve_loss"]
    return {**event, "loss": loss, "perplexity": perplexity(loss)}


class Index:
    """Index of a study's folder. Creating this object opens nothing.

    Args:
        out: the study's folder.

    Example:
        >>> Index("runs/first").curve("base-s0-6b3f", "eval.loss")  # doctest: +SKIP
        [(100, 4.1), (200, 3.6)]
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.path = self.out / "index.db"
        self._checked = False

    def sync(self) -> dict[str, str]:
        """Add the events that the runs have written since the last call. Only for the holder of the supervisor's lock.

        An index that is missing, damaged or of another version is rebuilt.

        Returns:
            Runs whose events are damaged, with the reasons. Events after the damage are not added.

        Raises:
            InputError: the folder contains no study.
            DiskFull, JobError: the index cannot be written. The runs' files are not affected.
        """
        runs = {run.name: run.events_path for run in StudyFolder(self.out).all_runs()}
        try:
            # At most twice: an index that was just made and is unusable again says that the disk, not the file, is the
            # problem.
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
        """Rebuild the index from the event files, in whatever state it is.

        Returns:
            As `sync`.

        Raises:
            InputError: the folder contains no study.
            DiskFull, JobError: the index cannot be written, or a supervisor, which updates it, is running.
        """
        with Lock(self.out / "supervisor.lock").held(
            lambda holder: (
                f"{self.out}: expected no running supervisor, got process {holder}, which updates the index. Rebuild it when "
                "that process has ended."
            )
        ):
            self._clear()
            return self.sync()

    def curve(self, run: str, metric: str) -> list[tuple[int, float]]:
        """Steps and values of a metric, ordered by step, with one value per step.

        A step that was repeated after a resume has the value of the newest attempt.

        Args:
            run: name of the run.
            metric: for example `train.loss`.

        Raises:
            Damaged: the events after the stored position are damaged.
        """

        def stored(database: sqlite3.Connection) -> list[Any]:
            first, last = database.execute(_ATTEMPTS, (run,)).fetchone()
            attempts = range(first, last + 1) if first is not None else ()
            # One query per attempt, so that the primary key finds the metric without a scan of the others.
            return [row for attempt in attempts for row in database.execute(_CURVE, (run, attempt, metric))]

        rows, end = self._stored(run, stored)
        # Rows come attempt by attempt, oldest first, so that the newest attempt's value of a repeated step replaces the
        # others. Below, >= and not >: a later event of one attempt replaces an earlier one, as INSERT OR REPLACE does.
        newest = {step: (attempt, math.nan if value is None else value) for attempt, step, value in rows}
        for attempt, name, step, value in self._points_after(run, end):
            if name == metric and attempt >= newest.get(step, (0, 0.0))[0]:
                newest[step] = (attempt, value)
        return [(step, newest[step][1]) for step in sorted(newest)]

    def thinned(self, run: str, metric: str, *, first: int, last: int, parts: int) -> list[tuple[int, float]]:
        """Means of a metric over at most `parts` bins of equal width between two steps.

        Each mean is placed at the last step of its bin that has a value; with one value per bin these are the values
        themselves. Values that are not finite are left out. The database computes the sums, so that a hundred long runs
        can be drawn at once.

        Args:
            run: name of the run.
            metric: for example `train.loss`.
            first: first step.
            last: last step, included.
            parts: largest number of bins.

        Raises:
            Damaged: the events after the stored position are damaged.
        """
        width = max(1, -(-(last - first + 1) // parts))
        query = {"run": run, "metric": metric, "first": first, "last": last, "width": width}
        rows, pairs = self._rows_and_pairs(_THINNED, query)
        sums = {number: (step, total or 0.0, count) for number, step, total, count in rows}
        for step, value in pairs:
            if first <= step <= last and math.isfinite(value):
                newest_step, total, count = sums.get((step - first) // width, (0, 0.0, 0))
                sums[(step - first) // width] = (max(step, newest_step), total + value, count + 1)
        return [(step, total / count) for _, (step, total, count) in sorted(sums.items()) if count]

    def neighbours(self, run: str, metric: str, *, first: int, last: int) -> list[tuple[int, float]]:
        """The nearest finite values of a metric before one step and after another, as far as there are any.

        Args:
            run: name of the run.
            metric: for example `eval.loss`.
            first: first step between them.
            last: last step between them.

        Raises:
            Damaged: the events after the stored position are damaged.
        """
        rows, pairs = self._rows_and_pairs(_NEIGHBOURS, {"run": run, "metric": metric, "first": first, "last": last})
        points = [(step, value) for step, value in (*rows, *pairs) if math.isfinite(value)]
        before = [point for point in points if point[0] < first]
        after = [point for point in points if point[0] > last]
        return [*([max(before)] if before else []), *([min(after)] if after else [])]

    def _rows_and_pairs(self, sql: str, query: dict[str, Any]) -> tuple[list[Any], list[tuple[int, float]]]:
        """The rows of a query on the run's only attempt, and steps and values that the index lacks.

        After a resume there are no rows, but all steps and values: repeated steps count once, with their newest values.
        """
        run, metric = query["run"], query["metric"]
        attempts: set[int] = set()

        def stored(database: sqlite3.Connection) -> list[Any]:
            lowest, highest = database.execute(_ATTEMPTS, (run,)).fetchone()
            if lowest is None:
                return []
            attempts.update((lowest, highest))
            return database.execute(sql, {**query, "attempt": lowest}).fetchall()

        rows, end = self._stored(run, stored)
        fresh = list(self._points_after(run, end))
        attempts.update(point[0] for point in fresh)
        # The database sums over one attempt only. After a resume some steps have two values, and a sum over both would
        # weigh repeated steps twice; the curve, which keeps the newest, is then thinned here instead.
        if len(attempts) > 1:
            return [], self.curve(run, metric)
        return rows, [(step, value) for _, name, step, value in fresh if name == metric]

    def metrics(self, run: str) -> list[str]:
        """Names of a run's metrics, sorted.

        Raises:
            Damaged: the events after the stored position are damaged.
        """
        rows, end = self._stored(run, lambda database: database.execute(_METRICS, (run,)).fetchall())
        return sorted({name for (name,) in rows} | {point[1] for point in self._points_after(run, end)})

    def _clear(self) -> None:
        # The database is emptied where possible, because a reader may have the file open, and deleted where it is unusable.
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
            # WAL lets pages read while the supervisor writes. NORMAL may lose the last transactions in a power cut, but
            # never tears one: a position and its points stand or fall together, and what is lost is read from the event
            # files again.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            migrate(database)
            # Once per process: the check reads the whole database, and the supervisor opens it every second.
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
        """Rows of the index and the position in the run's events that they reach; no rows and 0 without a usable index."""
        events = self.out / run / "events.jsonl"
        head = _head(events)
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True)) as database:
                # One read transaction for the position and the rows. Without it, a sync between the two queries would
                # move the position on, and the events between the old and the new one would be neither in the rows nor
                # read from the file.
                database.execute("BEGIN")
                source = database.execute("SELECT head, end_byte FROM sources WHERE run = ?", (run,)).fetchone()
                if version(database) != len(MIGRATIONS) or source is None or source[0] != head:
                    return [], 0
                return (ask(database), source[1]) if EventFollower(events, source[1]).is_continued else ([], 0)
        except sqlite3.Error:
            return [], 0  # the event files contain everything, whatever is wrong with the index

    def _points_after(self, run: str, end: int) -> Iterator[Point]:
        yield from _points(EventFollower(self.out / run / "events.jsonl", end).read())

    def _delete(self) -> None:
        # The log first: a database that finds the log of another one beside it would replay its pages.
        for suffix in ("-wal", "-shm", ""):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _refused(self, error: sqlite3.Error) -> JobError:
        cause = (
            f"could not write {self.path} ({error}). The files of the runs are unaffected; the index is updated from them "
            "later."
        )
        if _code(error) == sqlite3.SQLITE_FULL:
            return DiskFull(f"{cause} Free some space on that disk.")
        return JobError(f"{cause} Check that the folder is writable and that no other process writes the index.")


def _add_new_events(database: sqlite3.Connection, run: str, path: Path) -> None:
    """Add the events that were appended since the last time, batch by batch, each with the position it reaches."""
    head = _head(path)
    source = database.execute("SELECT head, end_byte FROM sources WHERE run = ?", (run,)).fetchone()
    # The position stands in the same transaction as the points that it covers, so that after a crash anywhere the next
    # sync continues with exactly the first event that is not in the index. INSERT OR REPLACE makes even a repetition
    # harmless.
    follower = EventFollower(path, 0 if source is None else source[1])
    # A run that was removed and trained again has a new first line, with the time of its start, even where its length
    # is the same. Its old points are removed at once: mixed with the new ones, no curve would show that two trainings
    # are in it.
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
        for name, value in on_curve_text(event).items():
            if (
                name not in ("time", "attempt", "step")
                and isinstance(value, int | float)
                and not isinstance(value, bool)
            ):
                yield attempt, f"{kind}.{name}", step, float(value) + 0.0  # SQLite drops the sign of zero too


def _head(path: Path) -> str:
    """Identity of an events file: the hash of its first line, which contains the time of its start."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.readline()).hexdigest()
    except FileNotFoundError:
        return ""


def _is_unusable(error: sqlite3.Error) -> bool:
    return _code(error) in _UNUSABLE


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
