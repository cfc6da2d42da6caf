import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from addnorm.store import EventWriter, Lock, NotClaimed, RunFolder, RunStatus, events, follower
from addnorm.store.follower import NewestEvents

SPEC = {"run": "add-0", "variant": "add", "seed": 0, "steps": 100}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "add-0").mkdir()
    return RunFolder(tmp_path / "add-0", SPEC)


def test_a_new_run_is_queued(run: RunFolder) -> None:
    assert run.status().to_json() == {
        "run": "add-0",
        "variant": "add",
        "seed": 0,
        "state": "queued",
        "step": 0,
        "steps": 100,
        "loss": None,
        "accuracy": None,
        "perplexity": None,
        "attempts": 0,
        "reason": None,
        "uncompiled": None,
    }


def test_a_status_with_more_fields_has_the_same_json(run: RunFolder) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wider(RunStatus):
        speed: float = 3.0

    status = run.status()
    assert Wider(**status.to_json()).to_json() == status.to_json()


def test_a_claimed_run_is_running_then_interrupted_and_counts_attempts(run: RunFolder) -> None:
    for attempt in (1, 2):
        with run.claim() as events:
            events.write("start", step=0, resumed_from=None)
            assert run.status().state == "running"
        assert run.status().state == "interrupted"
        assert run.status().attempts == attempt


@pytest.mark.parametrize("state", ["finished", "failed", "diverged", "blocked"])
def test_a_marker_gives_the_state_and_the_reason(run: RunFolder, state: Any) -> None:
    with run.claim() as events:
        events.write("eval", step=100, loss=1.0)
        run.mark(state, reason="because", step=100)
    status = run.status()
    assert (status.state, status.reason, status.step) == (state, "because", 100)


def test_done_counts_before_the_lock_is_free(run: RunFolder) -> None:
    with run.claim() as events:
        events.write("eval", step=100, loss=1.0)
        run.mark("finished", step=100)
        assert run.status().state == "finished"


def test_a_worker_that_finishes_between_the_two_looks_is_finished(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    EventWriter(run.events_path, attempt=1).write("eval", step=100, loss=1.0)

    def leaves() -> bool:
        run.mark("finished", step=100)
        return False

    monkeypatch.setattr(run, "is_held", leaves)
    assert run.status().state == "finished"


@pytest.mark.parametrize("name", ["FAILED", "BLOCKED"])
def test_a_marker_made_by_hand_counts(run: RunFolder, name: str) -> None:
    (run.path / name).touch()
    status = run.status()
    assert status.state == {"FAILED": "failed", "BLOCKED": "blocked"}[name]
    assert status.reason == f"{name} holds no reason"


def test_done_wins_over_the_others(run: RunFolder) -> None:
    for state in ("blocked", "failed", "finished"):
        run.mark(state, reason=state, step=100)
    EventWriter(run.events_path, attempt=1).write("eval", step=100, loss=1.0)
    assert run.status().state == "finished"


def test_numbers_come_from_the_newest_evaluation_else_from_training(run: RunFolder) -> None:
    with run.claim() as events:
        events.write("train", step=1, loss=3.0)
        assert run.status().loss == 3.0
        events.write("eval", step=1, loss=2.5, accuracy=0.25, perplexity=12.2, final=False)
        events.write("train", step=2, loss=2.9)
        status = run.status()
    assert (status.loss, status.accuracy, status.perplexity, status.step) == (2.5, 0.25, 12.2, 2)


def test_a_loss_that_is_not_finite_is_none(run: RunFolder) -> None:
    with run.claim() as events:
        events.write("train", step=1, loss=math.nan)
    assert run.status().loss is None


def test_the_step_goes_back_with_a_resume(run: RunFolder) -> None:
    with run.claim() as events:
        events.write("train", step=50, loss=1.0)
    with run.claim() as events:
        events.write("start", step=40, resumed_from=40)
    assert run.status().step == 40


def test_a_held_run_is_not_claimed_twice(run: RunFolder) -> None:
    lock = Lock(run.path / "lock")
    assert lock.try_acquire()
    with pytest.raises(NotClaimed, match=r"is running by process \d+") as caught, run.claim():
        pass
    assert caught.value.state == "running"
    lock.release()


@pytest.mark.parametrize("state", ["finished", "failed", "diverged"])
def test_a_run_that_has_ended_is_not_claimed(run: RunFolder, state: Any) -> None:
    run.mark(state, step=1)
    with pytest.raises(NotClaimed) as caught, run.claim():
        pass
    assert caught.value.state == state
    assert not run.is_held()


def test_a_blocked_run_is_claimed_and_no_longer_blocked(run: RunFolder) -> None:
    run.mark("blocked", reason="disk", step=1)
    with run.claim():
        assert run.status().state == "running"
    assert run.status().state == "queued"


def test_retry_lets_a_failed_run_be_claimed(run: RunFolder) -> None:
    run.mark("failed", reason="x", step=1)
    run.retry()
    with run.claim() as events:
        events.write("start", step=0)
    assert run.status().state == "interrupted"


def test_an_error_in_a_claim_gives_the_lock_back(run: RunFolder) -> None:
    with pytest.raises(ZeroDivisionError), run.claim():
        raise ZeroDivisionError
    assert not run.is_held()


def test_damaged_events_block_the_run_alone(run: RunFolder) -> None:
    run.events_path.write_bytes(b"garbage\n")
    status = run.status()
    assert status.state == "blocked"
    assert status.reason is not None
    assert "damaged" in status.reason


def test_the_newest_is_found_by_every_way_of_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    old = NewestEvents(path)
    seen: list[int] = []
    decode = events.decode_event

    def spy(line: bytes) -> Any:
        seen.append(len(line))
        return decode(line)

    monkeypatch.setattr(follower, "decode_event", spy)
    with EventWriter(path, attempt=1) as writer:
        for step in range(200):
            writer.write("eval" if step % 50 == 0 else "train", step=step, note='"type":"eval"')
            old.look()
    seen.clear()
    new = NewestEvents(path).look()
    assert (new.last, new.of_type) == (old.last, old.of_type)
    assert [new.of_type["train"]["step"], new.of_type["eval"]["step"]] == [199, 150]
    assert len(seen) == 2  # the newest train event, and the first eval from the end


def test_the_newest_follows_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventWriter(path, attempt=1) as events:
        for step in range(20):
            events.write("train", step=step)
    found = NewestEvents(path).look()
    path.unlink()
    with EventWriter(path, attempt=1) as events:
        events.write("train", step=3)
    assert found.look().last == found.of_type["train"]
    assert found.of_type["train"]["step"] == 3
    path.unlink()
    assert found.look().last is None
