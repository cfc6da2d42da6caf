"""One reader follows a run's events: appended, torn, replaced and repeated."""

from pathlib import Path
from typing import Any

import pytest

from addnorm.store import Damaged, EventFollower, EventWriter, follower, unrepeated


def write(path: Path, steps: range, *, attempt: int = 1, kind: str = "train") -> None:
    with EventWriter(path, attempt=attempt) as events:
        for step in steps:
            events.write(kind, step=step)


def steps(events: Any) -> list[int]:
    return [event["step"] for event in events]


def test_each_read_returns_what_was_appended_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHUNK_BYTES", 100)
    path = tmp_path / "e"
    reader = EventFollower(path)
    assert list(reader.read()) == []
    write(path, range(10))
    assert steps(reader.read()) == list(range(10))
    write(path, range(10, 12))
    later = EventFollower(path, reader.position)
    assert steps(reader.read()) == steps(later.read()) == [10, 11]
    assert reader.position == later.position == path.stat().st_size
    assert list(reader.read()) == []


def test_a_torn_last_line_is_returned_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write(path, range(2))
    reader = EventFollower(path)
    with open(path, "ab") as file:
        file.write(b'{"time":1.0,"attempt":1,"type":"train",')
        file.flush()
        assert steps(reader.read()) == [0, 1]
        file.write(b'"step":2}\n')
    assert steps(reader.read()) == [2]


def test_other_types_are_skipped_undecoded_and_a_mark_inside_a_value_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with EventWriter(path, attempt=1) as events:
        events.write("train", step=1, note='"type":"eval"', nested={"type": "eval"})
        events.write("eval", step=1)
    with open(path, "ab") as file:
        file.write(b"not an event\n")
    reader = EventFollower(path, types=("eval",))
    assert [(event["type"], event["step"]) for event in reader.read()] == [("eval", 1)]
    assert reader.position == path.stat().st_size
    with pytest.raises(Damaged, match="line 3"):
        list(EventFollower(path).read())


def test_chunks_give_the_position_that_each_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_CHUNK_BYTES", 1)
    path = tmp_path / "e"
    write(path, range(3))
    reader = EventFollower(path)
    ends = [(steps(chunk), reader.position) for chunk in reader.chunks()]
    line = path.stat().st_size // 3
    assert [found for found, _ in ends] == [[0], [1], [2]]
    assert ends[-1][1] == path.stat().st_size
    assert abs(ends[0][1] - line) <= 2


def test_a_replaced_file_is_told_and_not_read_on(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write(path, range(30))
    reader = EventFollower(path)
    list(reader.read())
    assert reader.is_continued
    path.unlink()
    write(path, range(3))
    assert not reader.is_continued
    with pytest.raises(Damaged, match="cut short, replaced or deleted"):
        list(reader.read())
    reader.restart()
    assert steps(reader.read()) == [0, 1, 2]


def test_steps_that_a_resumed_attempt_repeats_count_once_for_each_type(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write(path, range(1, 6))
    write(path, range(2, 4), kind="eval")
    reader, furthest = EventFollower(path), {}
    assert [(event["type"], event["step"]) for event in unrepeated(reader.read(), furthest)] == [
        *(("train", step) for step in range(1, 6)),
        ("eval", 2),
        ("eval", 3),
    ]
    write(path, range(4, 8), attempt=2)
    kept = list(unrepeated(reader.read(), furthest))
    assert [(event["attempt"], event["step"]) for event in kept] == [(2, 6), (2, 7)]
    assert furthest == {"train": 7, "eval": 3}


def test_an_evaluation_at_step_0_is_passed_on_once() -> None:
    furthest: dict[str, int] = {}
    assert len(list(unrepeated([{"type": "eval", "step": 0}], furthest))) == 1
    assert list(unrepeated([{"type": "eval", "step": 0}], furthest)) == []
