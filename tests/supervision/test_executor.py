import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from warm import FakeExecutor

from addnorm.errors import InputError, JobError
from addnorm.store import Index, RunFolder, RunStatus, StudyFolder, read_events
from addnorm.store.lines import read_lines
from addnorm.supervision.executors.local import LocalExecutor
from addnorm.supervision.supervisor import supervise
from addnorm.training.exit_code import ExitCode

COMMAND = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
STEPS = 40


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "out"
    for lock in tmp_path.glob("out/*/lock"):
        pid = RunFolder(lock.parent).worker()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def make(out: Path, runs: int = 3, **more: Any) -> StudyFolder:
    entries = [{"run": f"v-{n}", "variant": "v", "seed": n, "steps": STEPS, **more} for n in range(runs)]
    return StudyFolder.create(out, {"study": "demo", "plan_hash": "p", "runs": entries})


def go(
    study: StudyFolder,
    on_tick: Callable[[list[RunStatus]], None] = lambda _: None,
    slots: int = 3,
    executor: Callable[..., LocalExecutor] = LocalExecutor,
    **more: Any,
) -> list[str]:
    """Supervise a study with workers that are started as a user's are."""
    rest = {"tick_s": 0.01, "backoff_s": 0.01} | more
    statuses = supervise(study, executor(slots, command=COMMAND), on_tick=on_tick, **rest)
    return [status.state for status in statuses]


go_forked = partial(go, executor=FakeExecutor)
"""The same where the start of a worker is not the subject."""


def logged(study: StudyFolder, kind: str) -> list[dict[str, Any]]:
    return [entry for entry in read_lines(study.path / "supervisor.jsonl")[0] if entry["type"] == kind]


def assert_nothing_lost_or_doubled(study: StudyFolder) -> None:
    """Every step once in the curve, with its value, in the index as in the files; attempts and positions in order."""
    for run in study.runs():
        expected = [(step, run.spec["seed"] + 1 / step) for step in range(1, STEPS + 1)]
        assert Index(study.path).curve(run.name, "train.loss") == expected
        (study.path / "index.db").rename(study.path / "aside")
        assert Index(study.path).curve(run.name, "train.loss") == expected
        (study.path / "aside").rename(study.path / "index.db")
        attempts = [event["attempt"] for event in read_events(run.events_path)[0]]
        assert attempts == sorted(attempts)
        assert attempts[-1] == run.status().attempts


def start_supervisor(out: Path, slots: int = 3) -> "subprocess.Popen[bytes]":
    script = Path(__file__).with_name("fake_supervisor.py")
    return subprocess.Popen([sys.executable, str(script), str(out), str(slots)], start_new_session=True)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("what was waited for did not come")


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def test_eight_workers_at_once_finish_on_an_empty_folder(out: Path) -> None:
    study = make(out, 8)
    seen: set[str] = set()
    most = 0

    def look(statuses: list[RunStatus]) -> None:
        nonlocal most
        seen.update(status.state for status in statuses)
        most = max(most, sum(status.state == "running" for status in statuses))

    assert go(study, look, slots=8) == ["finished"] * 8
    assert seen == {"running", "finished"}
    assert most == 8
    assert_nothing_lost_or_doubled(study)
    assert study.status()["runs"][0] == {
        "run": "v-0",
        "variant": "v",
        "seed": 0,
        "state": "finished",
        "step": STEPS,
        "steps": STEPS,
        "loss": 0.5,
        "accuracy": 0.25,
        "perplexity": 1.6,
        "attempts": 1,
        "reason": None,
        "uncompiled": None,
    }


def test_runs_start_in_plan_order_and_no_more_than_the_slots(out: Path) -> None:
    study = make(out, 5)

    def look(statuses: list[RunStatus]) -> None:
        assert sum(status.state == "running" for status in statuses) <= 2

    assert go_forked(study, look, slots=2) == ["finished"] * 5
    assert [entry["run"] for entry in logged(study, "started")] == [f"v-{n}" for n in range(5)]


def test_a_finished_study_starts_nothing(out: Path) -> None:
    study = make(out)
    go_forked(study)
    go_forked(StudyFolder(out))
    assert len(logged(study, "started")) == 3


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_kill_9_of_workers_at_random_steps(out: Path, seed: int) -> None:
    study = make(out)
    chance = random.Random(seed)
    plan = {run.name: sorted(chance.sample(range(1, STEPS - 5), 6)) for run in study.runs()}
    killed = 0

    def strike(statuses: list[RunStatus]) -> None:
        nonlocal killed
        for status in statuses:
            left = plan[status.run]
            run = study.run(status.run)
            pid = run.worker()
            if pid and left and status.step >= left[0]:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda run=run: not run.is_held())  # type: ignore[misc]
                # It went on until it died: the next one is killed when it has got further than that.
                reached = run.status().step
                plan[status.run] = [step for step in left if step > reached]
                killed += 1

    # Each gets further than the one before, so one retry is enough for any number of them.
    assert go(study, strike, retries=1) == ["finished"] * 3
    died = sum(entry["code"] == -signal.SIGKILL for entry in logged(study, "ended"))
    assert 6 <= died <= killed  # one that has just finished dies no more
    assert_nothing_lost_or_doubled(study)


def test_workers_outlive_their_supervisor_and_are_adopted(out: Path) -> None:
    study = make(out, 3, pace_s=0.03)
    first = start_supervisor(out, slots=2)
    wait_until(lambda: all(run.status().step >= 3 for run in study.runs()[:2]))
    kill(first)
    pids = [run.worker() or 0 for run in study.runs()[:2]]
    assert [os.getsid(pid) for pid in pids] == pids
    assert study.runs()[2].status().state == "queued"
    assert go(study, slots=2) == ["finished"] * 3
    assert [entry["pid"] for entry in logged(study, "adopted")] == pids
    assert [run.status().attempts for run in study.runs()] == [1, 1, 1]
    assert_nothing_lost_or_doubled(study)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_kill_9_of_supervisors_and_workers_in_any_order(out: Path, seed: int) -> None:
    study = make(out, 3, pace_s=0.005)
    chance = random.Random(seed)
    for target in (6, 14, 24):
        supervisor = start_supervisor(out)
        wait_until(lambda target=target: max(run.status().step for run in study.runs()) >= target)  # type: ignore[misc]
        if chance.random() < 0.5:
            kill(supervisor)
        for run in chance.sample(study.runs(), 2):
            pid = run.worker()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        kill(supervisor)
    assert go(study) == ["finished"] * 3
    assert_nothing_lost_or_doubled(study)
    assert not [run for run in study.runs() if run.is_held()]


def test_a_second_supervisor_is_refused_by_name(out: Path) -> None:
    study = make(out, 1, pace_s=0.05)
    first = start_supervisor(out)
    wait_until(lambda: study.runs()[0].status().step > 0)
    with pytest.raises(JobError, match=f"expected no other supervisor, got process {first.pid}"):
        go(study)
    kill(first)
    assert go(study) == ["finished"]


def test_ctrl_c_stops_workers_in_order_and_a_second_call_goes_on(out: Path) -> None:
    study = make(out, 3, pace_s=0.01)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    sent: list[int] = []

    def interrupt(statuses: list[RunStatus]) -> None:
        if not sent and all(status.step >= 3 for status in statuses[:2]):
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    assert go(study, interrupt, slots=2) == ["interrupted", "interrupted", "queued"]
    assert [entry["code"] for entry in logged(study, "ended")] == [ExitCode.STOPPED, ExitCode.STOPPED]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert go(study) == ["finished"] * 3
    assert_nothing_lost_or_doubled(study)
    # Each had kept its very last step, so none was done twice.
    assert {len([e for e in read_events(run.events_path)[0] if e["type"] == "train"]) for run in study.runs()} == {
        STEPS
    }


@pytest.mark.parametrize("adopted", [False, True])
def test_a_second_ctrl_c_kills(out: Path, adopted: bool) -> None:
    study = make(out, 1, pace_s=0.05, fault={"deaf": True})
    if adopted:
        first = start_supervisor(out)
        wait_until(lambda: study.runs()[0].status().step >= 1)
        kill(first)
    ticks = 0

    def interrupt(statuses: list[RunStatus]) -> None:
        nonlocal ticks
        if statuses[0].step >= 2:
            ticks += 1
            if ticks in (1, 5):
                os.kill(os.getpid(), signal.SIGTERM)

    assert go(study, interrupt, retries=0) == ["interrupted"]  # what was asked to stop has not failed
    assert ticks >= 5
    assert not study.runs()[0].is_held()


def test_a_run_that_always_crashes_is_failed_with_its_last_words(out: Path) -> None:
    study = make(out, 2)
    broken = StudyFolder.create(
        out.with_name("broken"),
        {**study.plan, "runs": [{**study.plan["runs"][0], "fault": {"at": 7, "raise": True}}, study.plan["runs"][1]]},
    )
    assert go_forked(broken, retries=2) == ["failed", "finished"]
    run = broken.runs()[0]
    ending = run.ending()
    assert ending is not None
    assert ending["log"][-1] == "RuntimeError: the loss is a cabbage"
    assert run.status().reason == (
        "the worker ended early (exit code 1), 3 times in a row without getting further; "
        "its log ends: RuntimeError: the loss is a cabbage"
    )
    assert run.status().attempts == 3
    assert go_forked(broken) == ["failed", "finished"]
    assert len([entry for entry in logged(broken, "started") if entry["run"] == run.name]) == 3
    run.retry()
    assert go_forked(broken, retries=0) == ["failed", "finished"]
    assert run.status().attempts == 4


@pytest.mark.parametrize(
    ("fault", "state", "starts"),
    [
        ({"exit_unclaimed": 0}, "failed", 2),  # says done, and DONE is not there
        ({"exit_unclaimed": 3}, "failed", 2),
        ({"exit_unclaimed": 75}, "queued", 2),  # stopped from outside again and again: no failure
        ({"exit_unclaimed": 74}, "blocked", 2),
        ({"at": 7, "mark": "diverged", "exit": 1}, "diverged", 1),
        ({"at": 7, "mark": "failed", "exit": 1}, "failed", 1),
        ({"at": 7, "mark": "failed", "signal": 9}, "failed", 1),
        ({"at": 7, "mark": "blocked", "exit": 74}, "blocked", 1),
        ({"at": 7, "mark": "blocked", "values": {"cause": "disk", "need_bytes": 1 << 60}, "exit": 74}, "blocked", 1),
        ({"at": 7, "mark": "blocked", "values": {"cause": "disk", "need_bytes": 1}, "exit": 74}, "blocked", 2),
        ({"at": 7, "signal": 11}, "failed", 2),
    ],
)
def test_what_a_worker_leaves_decides_what_it_was(out: Path, fault: dict[str, Any], state: str, starts: int) -> None:
    study = make(out, 1, fault=fault)
    assert go_forked(study, retries=1) == [state]
    assert len(logged(study, "started")) == starts


def test_a_blocked_run_is_tried_again_by_the_next_call(out: Path) -> None:
    study = make(out, 1, fault={"at": 6, "once": True, "mark": "blocked", "exit": 74})
    assert go_forked(study) == ["blocked"]
    assert study.runs()[0].status().reason == "a reason"
    assert go_forked(study) == ["finished"]
    assert_nothing_lost_or_doubled(study)


def test_a_crash_on_a_full_disk_is_no_failure(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make(out, 1, fault={"at": 6, "once": True, "raise": True})
    with monkeypatch.context() as full:
        full.setattr("addnorm.supervision.supervised_run.free_bytes", lambda path: 1000)
        full.setattr("addnorm.supervision.supervisor.free_bytes", lambda path: 1000)
        assert go_forked(study, retries=0) == ["blocked"]
    reason = study.runs()[0].status().reason
    assert reason is not None
    assert "exit code 1" in reason
    assert "almost full" in reason
    assert go_forked(study) == ["finished"]
    assert_nothing_lost_or_doubled(study)


def test_the_next_start_waits_until_there_is_room(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"cause": "disk", "need_bytes": 500}
    study = make(out, 2, fault={"at": 6, "once": True, "mark": "blocked", "values": values, "exit": 74})
    free = [100]
    monkeypatch.setattr("addnorm.supervision.supervised_run.free_bytes", lambda path: free[0])

    def make_room(statuses: list[RunStatus]) -> None:
        if statuses[0].state == "blocked" and statuses[1].step >= 3:
            free[0] = 1000  # while the second run is still at work

    assert go_forked(study, make_room, slots=1) == ["finished"] * 2
    assert [entry["run"] for entry in logged(study, "started")][:2] == ["v-0", "v-1"]


def test_an_old_block_is_not_taken_for_a_new_one(out: Path) -> None:
    study = make(out, 1, fault={"exit_unclaimed": 3})
    study.runs()[0].mark("blocked", reason="long ago", step=0)
    assert go_forked(study, retries=0) == ["failed"]


def test_a_run_blocked_by_a_full_disk_goes_on_when_there_is_room(out: Path) -> None:
    values = {"cause": "disk", "need_bytes": 1}
    study = make(out, 1, fault={"at": 6, "once": True, "mark": "blocked", "values": values, "exit": 74})
    assert go_forked(study) == ["finished"]
    assert_nothing_lost_or_doubled(study)


def test_damaged_events_set_one_run_aside(out: Path) -> None:
    study = make(out, 2)
    study.runs()[0].events_path.write_bytes(b"garbage\n")
    assert go_forked(study) == ["blocked", "finished"]
    assert [entry["run"] for entry in logged(study, "started")] == ["v-1"]
    assert "v-0" in logged(study, "index")[0]["trouble"]


def test_trouble_with_the_index_does_not_stop_the_training(out: Path) -> None:
    study = make(out, 1)
    (out / "index.db").mkdir()
    assert go_forked(study) == ["finished"]
    (trouble,) = logged(study, "index")
    assert "index.db" in trouble["trouble"]["index"]


def test_a_worker_that_finds_another_in_its_place_is_no_crash(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor killed right after it started a worker leaves one that nobody can see until it takes its lock."""
    study = make(out, 1, pace_s=0.02)
    stray: list[subprocess.Popen[bytes]] = []

    def intrude(statuses: list[RunStatus]) -> None:
        if not stray:
            monkeypatch.delenv("FAKE_WAITS_FOR_A_RIVAL")
            stray.append(subprocess.Popen([*COMMAND, str(study.runs()[0].path)], stdout=subprocess.DEVNULL))

    monkeypatch.setenv("FAKE_WAITS_FOR_A_RIVAL", "1")
    assert go(study, intrude, retries=0) == ["finished"]
    stray[0].wait()
    assert [entry["code"] for entry in logged(study, "ended")] == [ExitCode.STOPPED, None]
    assert [entry["pid"] for entry in logged(study, "adopted")] == [stray[0].pid]
    assert logged(study, "given up") == []
    assert study.runs()[0].status().attempts == 1
    assert_nothing_lost_or_doubled(study)


def test_threads_are_pinned_and_each_worker_has_its_own_device(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    study = make(out, 4)
    executor = LocalExecutor(2, 3, cuda_devices=("GPU-a", "5"), command=COMMAND)
    supervise(study, executor, on_tick=lambda _: None, tick_s=0.01)
    seen = [run.env for run in study.runs()]
    assert all(env is not None and env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == "3" for env in seen)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in seen[:2] if env] == ["GPU-a", "5"]
    assert {env["CUDA_VISIBLE_DEVICES"] for env in seen if env} == {"GPU-a", "5"}


def test_an_adopted_worker_keeps_its_device(out: Path) -> None:
    study = make(out, 2, pace_s=0.02)
    runs = study.runs()
    first = LocalExecutor(2, cuda_devices=("0", "1"), command=COMMAND)
    assert list(first.start(runs)) == ["v-0", "v-1"]
    wait_until(lambda: all(run.is_held() and run.env for run in runs))
    first.kill(runs[1:])
    wait_until(lambda: first.poll(runs[1:])["v-1"].code == -signal.SIGKILL)
    second = LocalExecutor(2, cuda_devices=("0", "1"), command=COMMAND)
    assert list(second.find(runs)) == ["v-0"]
    second.start(runs[1:])
    wait_until(lambda: second.poll(runs[1:])["v-1"].phase == "ended")
    assert (runs[1].env or {})["CUDA_VISIBLE_DEVICES"] == "1"
    wait_until(lambda: first.poll(runs[:1])["v-0"].phase == "ended")


def test_more_workers_than_devices_share_them_evenly(out: Path) -> None:
    study = make(out, 5, pace_s=0.02)
    executor = LocalExecutor(5, cuda_devices=("0", "1", "0", "1", "0"), command=COMMAND)
    assert len(executor.start(study.runs())) == 5
    assert sorted(job.device or "" for job in executor.jobs.values()) == ["0", "0", "0", "1", "1"]
    executor.kill(study.runs())
    for run in study.runs():  # one by one: a job that has ended is forgotten, and cannot be asked about again
        wait_until(lambda run=run: executor.poll([run])[run.name].phase == "ended")


def test_a_worker_hears_nothing_and_keeps_all_it_says(out: Path) -> None:
    study = make(out, 1)
    go(study)
    worker = logged(study, "started")[0]["pid"]
    assert study.runs()[0].log_path.read_text() == f"worker {worker} begins\n"
    assert worker != os.getpgid(0)


def test_numbers_of_slots_are_checked() -> None:
    with pytest.raises(InputError, match="executor: expected slots and threads of at least 1, got 0"):
        LocalExecutor(0)
    with pytest.raises(InputError, match="expected one device per slot, got 1 devices for 2 slots"):
        LocalExecutor(2, cuda_devices=["0"])
    assert LocalExecutor.create(threads=10_000).slots >= 1
