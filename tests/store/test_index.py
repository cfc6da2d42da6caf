import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addnorm.errors import InputError, JobError
from addnorm.store import Damaged, DiskFull, EventWriter, Index, Lock, StudyFolder, migrations

PLAN = {
    "study": "demo",
    "plan_hash": "p",
    "runs": [{"run": name, "variant": name, "seed": 0, "steps": 9} for name in ("a", "b")],
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    StudyFolder.create(tmp_path / "out", PLAN)
    return tmp_path / "out"


def write(out: Path, steps: range, *, run: str = "a", attempt: int = 1, plus: float = 0.0) -> None:
    with EventWriter(out / run / "events.jsonl", attempt=attempt) as events:
        for step in steps:
            events.write("train", step=step, loss=step + plus)


def stored(out: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(out / "index.db") as database:
        rows = database.execute("SELECT run, attempt, metric, step, value FROM points").fetchall()
    database.close()
    return rows


def test_a_replayed_step_counts_once_and_the_newest_attempt_wins(out: Path) -> None:
    write(out, range(1, 6))
    write(out, range(4, 7), attempt=2, plus=0.5)
    expected = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, 5.5), (6, 6.5)]
    assert Index(out).curve("a", "train.loss") == expected
    assert Index(out).sync() == {}
    assert Index(out).curve("a", "train.loss") == expected
    assert len(stored(out)) == 8


def test_numbers_are_metrics_and_nothing_else_is(out: Path) -> None:
    with EventWriter(out / "a" / "events.jsonl", attempt=1) as events:
        events.write("eval", step=3, loss=math.nan, accuracy=1, final=True, note="x", nested={"a": 1.0})
        events.write("train", step=3, loss=math.inf)
    for _ in range(2):
        index = Index(out)
        assert index.metrics("a") == ["eval.accuracy", "eval.loss", "train.loss"]
        assert index.curve("a", "eval.accuracy") == [(3, 1.0)]
        assert index.curve("a", "train.loss") == [(3, math.inf)]
        ((step, value),) = index.curve("a", "eval.loss")
        assert step == 3
        assert math.isnan(value)
        index.sync()


def test_the_last_point_of_a_curve_is_on_the_text_of_the_others(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EventWriter(out / "a" / "events.jsonl", attempt=1) as events:
        events.write("eval", step=3, loss=2.5, perplexity=math.exp(2.5), final=False)
        events.write("eval", step=6, loss=2.1, perplexity=math.exp(2.1), final=True, text={"curve_loss": 2.0})
    with monkeypatch.context() as before:  # what the first version stored
        before.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        before.setattr("addnorm.store.index.on_curve_text", lambda event: event)
        Index(out).sync()
        assert ("a", 1, "eval.loss", 6, 2.1) in stored(out)
    for _ in range(2):
        assert Index(out).curve("a", "eval.loss") == [(3, 2.5), (6, 2.0)]
        assert Index(out).curve("a", "eval.perplexity")[-1] == (6, math.exp(2.0))
        Index(out).sync()
    assert ("a", 1, "eval.loss", 6, 2.0) in stored(out)


def test_sync_reads_new_bytes_alone(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(out)
    write(out, range(100))
    index.sync()
    asked: list[int] = []
    read = sys.modules["addnorm.store.follower"].read_events

    def spy(path: Path, offset: int = 0, **rest: Any) -> Any:
        asked.append(offset)
        return read(path, offset, **rest)

    monkeypatch.setattr("addnorm.store.follower.read_events", spy)
    size = (out / "a" / "events.jsonl").stat().st_size
    write(out, range(100, 102))
    index.sync()
    assert {offset for offset in asked if offset} == {size, (out / "a" / "events.jsonl").stat().st_size}
    assert asked.count(0) == 1  # run b, which has nothing
    assert len(stored(out)) == 102


def test_what_the_index_does_not_hold_yet_is_read_from_the_files(out: Path) -> None:
    write(out, range(3))
    Index(out).sync()
    write(out, range(3, 5))
    write(out, range(2, 4), attempt=2, plus=0.5)
    assert Index(out).curve("a", "train.loss") == [(0, 0.0), (1, 1.0), (2, 2.5), (3, 3.5), (4, 4.0)]
    assert len(stored(out)) == 3


def damage_header(path: Path) -> None:
    path.write_bytes(b"not a database" * 500)


def damage_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = random.Random(0).randbytes(len(content) - 4096)
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("DROP TABLE points")
        database.execute("CREATE TABLE points (x)")
        database.execute("CREATE VIEW later AS SELECT x FROM points")
    database.close()


def drop_a_table(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE sources")
    database.close()


@pytest.mark.parametrize("harm", [damage_header, damage_pages, empty, delete, make_newer, drop_a_table])
def test_an_index_in_any_state_is_made_anew(out: Path, harm: Callable[[Path], None]) -> None:
    write(out, range(2000))
    expected = [(step, float(step)) for step in range(2000)]
    for repair in ("sync", "rebuild"):
        Index(out).sync()
        harm(out / "index.db")
        assert Index(out).curve("a", "train.loss") == expected
        assert getattr(Index(out), repair)() == {}
        assert len(stored(out)) == 2000
        assert Index(out).curve("a", "train.loss") == expected


def test_an_index_deleted_without_its_journal_is_made_anew(out: Path) -> None:
    write(out, range(50))
    Index(out).sync()
    holder = sqlite3.connect(out / "index.db")  # keeps the journal from being tidied away
    holder.execute("SELECT count(*) FROM points").fetchall()
    write(out, range(50, 60))
    Index(out).sync()
    assert (out / "index.db-wal").stat().st_size > 0
    shutil.copy(out / "index.db-wal", out / "kept")
    holder.close()
    (out / "index.db").unlink()
    shutil.copy(out / "kept", out / "index.db-wal")
    write(out, range(60, 70))
    Index(out).sync()
    assert len(stored(out)) == 70


def test_a_run_that_was_started_anew_replaces_its_rows(out: Path) -> None:
    write(out, range(50))
    write(out, range(4), run="b")
    Index(out).sync()
    (out / "a" / "events.jsonl").unlink()
    write(out, range(60), plus=0.25)
    expected = [(step, step + 0.25) for step in range(60)]
    assert Index(out).curve("a", "train.loss") == expected
    Index(out).sync()
    assert Index(out).curve("a", "train.loss") == expected
    assert len(stored(out)) == 64
    (out / "a" / "events.jsonl").unlink()
    assert Index(out).curve("a", "train.loss") == []
    Index(out).sync()
    assert len(stored(out)) == 4


def test_a_run_that_was_started_anew_with_lines_of_the_same_lengths_replaces_its_rows(out: Path) -> None:
    for now in (111.5, 222.5):
        with EventWriter(out / "a" / "events.jsonl", attempt=1, clock=lambda now=now: now) as events:  # type: ignore[misc]
            for step in range(10, 20):
                events.write("train", step=step, loss=now)
        assert Index(out).curve("a", "train.loss") == [(step, now) for step in range(10, 20)]
        Index(out).sync()
        assert Index(out).curve("a", "train.loss") == [(step, now) for step in range(10, 20)]
        assert len(stored(out)) == 10
        (out / "a" / "events.jsonl").unlink()


def test_damaged_events_are_told_and_do_not_stop_the_others(out: Path) -> None:
    write(out, range(5))
    index = Index(out)
    index.sync()
    with open(out / "a" / "events.jsonl", "ab") as file:
        file.write(b"garbage\n")
    write(out, range(3), run="b")
    damage = index.sync()
    assert list(damage) == ["a"]
    assert "damaged at line 6" in damage["a"]
    assert len(stored(out)) == 8
    with pytest.raises(Damaged, match="line 6"):
        index.curve("a", "train.loss")


def test_a_failed_migration_leaves_the_old_version(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(out, range(5))
    Index(out).sync()
    bad = (*migrations.MIGRATIONS, ("CREATE TABLE new (x)", "CREATE TABLE points (x)"))
    monkeypatch.setattr(migrations, "MIGRATIONS", bad)
    database = sqlite3.connect(out / "index.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrations.migrate(database)
    assert migrations.version(database) == len(bad) - 1
    assert [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE name = 'new'")] == []
    database.close()


def test_rebuild_leaves_a_supervised_folder_alone(out: Path) -> None:
    lock = Lock(out / "supervisor.lock")
    assert lock.try_acquire()
    with pytest.raises(JobError, match=f"expected no running supervisor, got process {os.getpid()}"):
        Index(out).rebuild()
    lock.release()
    Index(out).rebuild()
    assert not Lock(out / "supervisor.lock").held_by()


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no study"):
        Index(tmp_path).sync()


def test_a_full_disk_is_told_and_what_was_stored_stays(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(out, range(5))
    Index(out).sync()
    write(out, range(5, 5000))
    connect = sqlite3.connect

    def small(*args: Any, **rest: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*args, **rest)
        database.execute("PRAGMA max_page_count = 10")
        return database

    with monkeypatch.context() as full:
        full.setattr(sqlite3, "connect", small)
        with pytest.raises(DiskFull, match="index is updated from them later"):
            Index(out).sync()
    assert len(stored(out)) == 5
    assert len(Index(out).curve("a", "train.loss")) == 5000
    Index(out).sync()
    assert len(stored(out)) == 5000


def test_kill_9_in_the_middle_of_sync_loses_and_doubles_nothing(out: Path) -> None:
    script = """
import os, sys
from addnorm.store import Index, follower, index
follower._CHUNK_BYTES = 1000
left = [int(sys.argv[2])]
points = index._points
def dying(events):
    for point in points(events):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), 9)
        yield point
index._points = dying
Index(sys.argv[1]).sync()
"""
    write(out, range(60))
    write(out, range(50, 90), attempt=2, plus=0.5)
    for points in (1, 7, 30, 55):
        died = subprocess.run([sys.executable, "-c", script, str(out), str(points)], check=False)
        assert died.returncode == -signal.SIGKILL
        expected = [(step, float(step)) for step in range(50)] + [(step, step + 0.5) for step in range(50, 90)]
        assert Index(out).curve("a", "train.loss") == expected
    Index(out).sync()
    assert len(stored(out)) == 100


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["train", "eval"]), st.integers(0, 6), st.floats(width=16)),
        st.sampled_from([("torn",), ("sync",), ("rebuild",), ("delete",), ("damage",), ("anew",)]),
    ),
    max_size=16,
)


@settings(max_examples=25, deadline=None)
@given(operations=OPERATIONS)
def test_no_order_of_events_crashes_and_repairs_changes_a_curve(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[Any, ...]]
) -> None:
    out = tmp_path_factory.mktemp("law") / "out"
    StudyFolder.create(out, PLAN)
    path = out / "a" / "events.jsonl"
    truth: dict[tuple[str, int], float] = {}
    attempt = 1
    clock = iter(range(1000)).__next__
    writer = EventWriter(path, attempt=attempt, clock=clock)
    index = Index(out)
    for name, *rest in operations:
        if name == "append":
            kind, step, value = rest
            writer.write(kind, step=step, loss=value)
            truth[kind, step] = value + 0.0  # the sign of zero is not kept
        elif name == "torn":
            writer.close()
            with open(path, "ab") as file:
                file.write(b'{"time":1,"attempt":1,"type":"train","step":1,"loss":999.0}'[: 1 + clock() % 50])
            index.sync()
            attempt += 1
            writer = EventWriter(path, attempt=attempt, clock=clock)
        elif name == "anew":
            writer.close()
            path.unlink()
            attempt, truth = 1, {}
            writer = EventWriter(path, attempt=attempt, clock=clock)
        elif name == "delete":
            (out / "index.db").unlink(missing_ok=True)
        elif name == "damage":
            (out / "index.db").write_bytes(b"\0\1" * 3000)
        else:
            getattr(index, name)()
        check(index, truth)
    writer.close()
    index.sync()
    check(index, truth)
    index.rebuild()
    check(index, truth)
    (out / "index.db").unlink()
    check(index, truth)


def check(index: Index, truth: dict[tuple[str, int], float]) -> None:
    for kind in ("train", "eval"):
        expected = sorted((step, value) for (name, step), value in truth.items() if name == kind)
        assert repr(index.curve("a", f"{kind}.loss")) == repr(expected)
