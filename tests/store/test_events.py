import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addnorm.errors import InputError, JobError
from addnorm.store import Damaged, DiskFull, EventWriter, lines, read_events
from addnorm.store.lines import LineWriter, decode, encode, lines_from_end, read_lines


def write(path: Path, steps: range, attempt: int = 1) -> None:
    with EventWriter(path, attempt=attempt) as events:
        for step in steps:
            events.write("train", step=step, loss=step / 10)


def steps_of(path: Path) -> list[int]:
    return [event["step"] for event in read_events(path)[0]]


def test_an_event_is_one_json_object_per_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path, attempt=2, clock=lambda: 5.5) as events:
        events.write("eval", step=3, loss=0.5, final=True, note=None, scalars={"a": [1, 2.5]})
    assert json.loads(path.read_text()) == {
        "time": 5.5,
        "attempt": 2,
        "type": "eval",
        "step": 3,
        "loss": 0.5,
        "final": True,
        "note": None,
        "scalars": {"a": [1, 2.5]},
    }


def test_what_is_not_finite_survives_as_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path, attempt=1) as events:
        events.write("train", step=1, loss=math.nan, nested={"a": [math.inf, -math.inf]})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    raw = json.loads(path.read_text(), parse_constant=refuse)
    assert (raw["loss"], raw["nested"]) == ("NaN", {"a": ["Infinity", "-Infinity"]})
    (event,), _ = read_events(path)
    assert math.isnan(event["loss"])
    assert event["nested"] == {"a": [math.inf, -math.inf]}


def test_an_event_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "e", attempt=1) as events:
        events.write("start", step=0)
        assert steps_of(tmp_path / "e") == [0]


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "e"
    assert read_events(path) == ([], 0)
    write(path, range(3))
    events, end = read_events(path)
    write(path, range(3, 5))
    more, last = read_events(path, end)
    assert [event["step"] for event in events + more] == [0, 1, 2, 3, 4]
    assert read_events(path, last) == ([], last)
    assert last == path.stat().st_size


def test_a_limit_gives_whole_events_and_at_least_one(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write(path, range(10))
    found: list[int] = []
    end = 0
    while True:
        events, reached = read_events(path, end, limit_bytes=1)
        if reached == end:
            break
        assert len(events) == 1
        found, end = found + [event["step"] for event in events], reached
    assert found == list(range(10))


@pytest.mark.parametrize("torn", [b"{", b'{"time":1,"attempt":1,"type":"tr', b"\0" * 300, b"\xff", b'{"a":1}'])
def test_a_torn_last_line_is_left_out_and_then_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "e"
    write(path, range(3))
    whole = path.read_bytes()
    with open(path, "ab") as file:
        file.write(torn)
    assert steps_of(path) == [0, 1, 2]
    assert read_events(path)[1] == len(whole)
    write(path, range(3, 4), attempt=2)
    assert steps_of(path) == [0, 1, 2, 3]
    assert path.read_bytes().startswith(whole)


def test_a_file_that_is_torn_line_alone_becomes_empty(tmp_path: Path) -> None:
    (tmp_path / "e").write_bytes(b"{" * 200_000)
    EventWriter(tmp_path / "e", attempt=1).close()
    assert (tmp_path / "e").read_bytes() == b""


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b'{"time":1\n', b"[1]\n", b"\n", b'{"step":1}\n'])
def test_damage_in_the_middle_is_refused_with_its_place(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "e"
    write(path, range(3))
    _, end = read_events(path)
    with open(path, "ab") as file:
        file.write(damage)
    write(path, range(3, 5))
    for offset in (0, end):
        with pytest.raises(Damaged, match=rf"e is damaged at line 4 \(byte {end}\)"):
            read_events(path, offset)


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "e"
    write(path, range(30))
    _, end = read_events(path)
    path.unlink()
    with pytest.raises(Damaged, match="cut short, replaced or deleted"):
        read_events(path, end)
    write(path, range(3))
    with pytest.raises(Damaged, match="cut short, replaced or deleted"):
        read_events(path, end)


def test_a_full_disk_leaves_no_half_line_and_writing_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e"
    real = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data[: len(data) // 2])

    with EventWriter(path, attempt=1) as events:
        events.write("train", step=1)
        before = path.read_bytes()
        with monkeypatch.context() as full:
            full.setattr(os, "write", half)
            with pytest.raises(DiskFull, match="no room left"):
                events.write("train", step=2)
        assert path.read_bytes() == before
        events.write("train", step=3)
    assert steps_of(path) == [1, 3]


def test_a_half_line_that_cannot_be_cut_off_at_once_is_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e"
    real = os.write

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def half(handle: int, data: bytes) -> int:
        real(handle, data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with EventWriter(path, attempt=1) as events:
        events.write("train", step=1)
        with monkeypatch.context() as broken:
            broken.setattr(os, "write", half)
            broken.setattr(os, "ftruncate", refuse)
            with pytest.raises(DiskFull):
                events.write("train", step=2)
        assert not path.read_bytes().endswith(b"\n")
        assert steps_of(path) == [1]
        events.write("train", step=3)
    assert steps_of(path) == [1, 3]


def test_a_real_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    script = """
import resource, sys
sys.dont_write_bytecode = True
from pathlib import Path
from addnorm.store import DiskFull, EventWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
events = EventWriter(Path(sys.argv[1]), attempt=1)
for step in range(1000):
    try:
        events.write("train", step=step, loss=0.5)
    except DiskFull:
        print(step)
        break
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "e")], capture_output=True, text=True, check=True
    )
    content = (tmp_path / "e").read_bytes()
    assert content.endswith(b"\n")
    assert len(content) <= 1000
    assert steps_of(tmp_path / "e") == list(range(int(done.stdout)))


def test_a_second_writer_is_noticed(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "e", attempt=1) as first, EventWriter(tmp_path / "e", attempt=1) as second:
        first.write("train", step=1)
        with pytest.raises(JobError, match="expected one writer"):
            second.write("train", step=1)


def test_a_clock_that_jumps_back_changes_no_order(tmp_path: Path) -> None:
    times = iter([100.0, 50.0, -3.0, 70.0])
    with EventWriter(tmp_path / "e", attempt=1, clock=lambda: next(times)) as events:
        for step in range(4):
            events.write("train", step=step)
    assert steps_of(tmp_path / "e") == [0, 1, 2, 3]


def test_values_that_are_no_events_are_refused_readably(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "e", attempt=1) as events:
        with pytest.raises(InputError, match=r"\$\.grads\.a\[1\]: expected a number.*got object.*\.item\(\)"):
            events.write("train", step=1, grads={"a": [1, object()]})
        with pytest.raises(InputError, match="'attempt'"):
            events.write("train", step=1, attempt=3)
    assert (tmp_path / "e").read_bytes() == b""


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text().filter(lambda text: text not in lines._NON_FINITE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_a_line_reads_back_as_it_was(record: dict[str, Any]) -> None:
    line = encode(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == record


@settings(max_examples=60)
@given(texts=st.lists(st.integers(0, 30), max_size=8), torn=st.integers(0, 20), block=st.integers(1, 40))
def test_lines_from_the_end_are_the_lines_turned_round(
    tmp_path_factory: pytest.TempPathFactory, texts: list[int], torn: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "e"
    writer = LineWriter(path)
    for number, length in enumerate(texts):
        writer.append({"n": number, "text": "x" * length})
    writer.close()
    ends = [read_lines(path, limit_bytes=None)[1]]
    with open(path, "ab") as file:
        file.write(b"t" * torn)
    with pytest.MonkeyPatch.context() as small:
        small.setattr(lines, "_BLOCK_BYTES", block)
        found = list(lines_from_end(path))
        reopened = LineWriter(path)
        reopened.close()
    assert [decode(line)["n"] for _, line in found] == list(range(len(texts)))[::-1]
    assert [end for end, _ in found][:1] == (ends if texts else [])
    for end, line in found:
        assert path.read_bytes()[:end].endswith(line + b"\n")
    assert path.stat().st_size == ends[0]
