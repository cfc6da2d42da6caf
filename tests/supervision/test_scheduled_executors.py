"""Executors that have a scheduler start their workers: the same questions to Slurm and Ray, each a few lines of a fake."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay
from fake_slurm import FakeSlurm

from addnorm.errors import JobError
from addnorm.fields import FieldError
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.claim import Claims
from addnorm.supervision.executors import Executor, ExecutorSpec, Work
from addnorm.supervision.executors.ray import Ray, RayExecutor
from addnorm.supervision.executors.slurm import Slurm, SlurmExecutor
from addnorm.supervision.supervisor import supervise
from addnorm.training.exit_code import ExitCode


@dataclass
class Scheduler:
    """What a test does with a fake, and what it may expect of it."""

    executor: Callable[[StudyFolder], Executor]
    work: Callable[[], dict[str, Any]]
    """The jobs or actors that there are; a test removes them."""
    starts: Callable[[], int]
    """Number of runs that were started, each time anew."""
    ended: Callable[[], list[str]]
    """Places of runs in the study whose work was cancelled or killed."""
    begin: Callable[[int], None]
    """Have a node take the run at a place, as the scheduler shows it."""
    code_path: Callable[[StudyFolder, RunFolder, int], Path]
    ends_at_once: Callable[[], None]
    away: Callable[[bool], None]
    no_answer: str
    never_began: str


@pytest.fixture(params=["slurm", "ray"])
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    fake = request.getfixturevalue(request.param)
    if isinstance(fake, FakeRay):
        return Scheduler(
            executor=lambda study: RayExecutor.of(Ray(), Work(folder=study.path)),
            work=lambda: fake.actors,
            starts=lambda: len(fake.created),
            ended=lambda: [name[-1] for name in fake.killed],
            begin=lambda place: None,  # Ray does not show it
            code_path=lambda study, run, place: study.path / "ray" / f"{run.name}.code",
            ends_at_once=lambda: setattr(fake, "ends", True),
            away=lambda is_away: setattr(fake, "away", is_away),
            no_answer="Ray failed: no answer",
            never_began="its actor has ended before its worker began, see ",
        )
    slurm: FakeSlurm = fake
    return Scheduler(
        executor=lambda study: SlurmExecutor.of(Slurm(poll_s=1e-9), Work(folder=study.path)),
        work=lambda: slurm.queue,
        starts=lambda: sum(int(array.partition("-")[2]) + 1 for _, array in slurm.arrays),
        ended=lambda: [job[-1] for job in slurm.cancelled],
        begin=lambda place: slurm.run(f"10_{place}"),
        code_path=lambda study, run, place: next(study.path.glob("slurm/*")) / f"{place}.code",
        ends_at_once=lambda: setattr(slurm, "on_submit", lambda fake, number: fake.queue.clear()),
        away=lambda is_away: setattr(slurm, "away", is_away),
        no_answer="Unable to contact slurm controller",
        never_began="has left the queue before its worker began, see ",
    )


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    entries = [{"run": f"v, rate 1e-3-s{n}", "variant": "v", "seed": n, "steps": 9} for n in range(3)]
    return StudyFolder.create(tmp_path / "out", {"study": "demo", "plan_hash": "p", "runs": entries})


def test_another_supervisor_finds_the_workers(scheduler: Scheduler, study: StudyFolder) -> None:
    runs = study.runs()
    first = scheduler.executor(study).start(runs[:2])
    assert list(first) == [run.name for run in runs[:2]]
    second = scheduler.executor(study)
    assert second.find(runs) == first
    assert second.find(runs[:2]) == {}  # it knows them
    assert {state.phase for state in second.poll(runs[:2]).values()} == {"waiting"}


def test_how_a_vanished_worker_ended_is_told_by_its_files(scheduler: Scheduler, study: StudyFolder) -> None:
    runs, starter = study.runs(), scheduler.executor(study)
    starter.start(runs)
    assert {state.phase for state in starter.poll(runs).values()} == {"waiting"}
    scheduler.code_path(study, runs[0], 0).write_text("74\n")
    Claims(runs[1].path / "claims").acquire().release()  # began, and was killed
    scheduler.work().clear()
    states = starter.poll(runs)
    assert {state.phase for state in states.values()} == {"ended"}
    assert [state.code for state in states.values()] == [ExitCode.BLOCKED, None, ExitCode.STOPPED]
    assert scheduler.never_began in states[runs[2].name].note
    assert scheduler.never_began not in states[runs[1].name].note


def test_while_the_scheduler_is_away_the_last_answer_stands(scheduler: Scheduler, study: StudyFolder) -> None:
    runs, starter = study.runs(), scheduler.executor(study)
    starter.start(runs[:2])
    starter.poll(runs[:2])
    scheduler.away(True)
    states = starter.poll(runs[:2])
    assert {state.phase for state in states.values()} == {"waiting"}
    assert scheduler.no_answer in states[runs[0].name].note
    with pytest.raises(JobError, match=scheduler.no_answer):  # started blindly, a run could have two workers
        scheduler.executor(study).find(runs)
    answers = starter.start(runs[2:])
    assert scheduler.no_answer in str(answers[runs[2].name])
    scheduler.away(False)
    scheduler.work().clear()
    assert {state.phase for state in starter.poll(runs[:2]).values()} == {"ended"}


def test_stop_leaves_a_file_and_ends_what_has_not_begun_and_kill_ends_all(
    scheduler: Scheduler, study: StudyFolder
) -> None:
    runs, starter = study.runs(), scheduler.executor(study)
    starter.start(runs)
    scheduler.begin(1)
    with runs[1].claim():
        for _ in range(2):
            starter.stop(runs)
        assert sorted(set(scheduler.ended())) == ["0", "2"]
        assert starter.poll(runs[1:2])[runs[1].name].phase == "working"
    assert all(run.stop_path.exists() for run in runs)
    before = len(scheduler.ended())
    starter.kill(runs[1:2])
    assert scheduler.ended()[before:] == ["1"]


def test_a_worker_that_the_scheduler_does_not_list_is_known_by_its_claim(
    scheduler: Scheduler, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, starter = study.runs()[0], scheduler.executor(study)
    monkeypatch.setenv("ADDNORM_HOST", "laptop")
    claim = Claims(run.path / "claims").acquire()
    monkeypatch.setenv("ADDNORM_HOST", "elsewhere")
    assert starter.find([run]) == {run.name: f"laptop:{os.getpid()}"}
    assert starter.find([run]) == {}
    assert starter.poll([run])[run.name].phase == "working"
    starter.stop([run])  # no signal gets there
    assert run.stop_path.exists()
    assert starter.poll([run])[run.name].phase == "working"
    claim.release()
    assert starter.poll([run])[run.name].phase == "ended"
    assert scheduler.ended() == []


def test_runs_that_vanish_are_started_again_a_few_times(scheduler: Scheduler, study: StudyFolder) -> None:
    scheduler.ends_at_once()
    statuses = supervise(study, scheduler.executor(study), on_tick=lambda _: None, tick_s=0.0, backoff_s=0.0, retries=2)
    assert [status.state for status in statuses] == ["queued"] * 3  # ended from outside: not the run's fault
    assert scheduler.starts() == 9
    reason = statuses[0].reason or ""
    assert scheduler.never_began in reason
    assert reason.endswith("), 3 times in a row without getting further")


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        (Slurm, {"time_limit": "soon"}, r"slurm\.time_limit: expected minutes, HH:MM:SS or D-HH:MM:SS, got 'soon'"),
        (Slurm, {"time_limit": "1"}, r"slurm\.time_limit: expected more than 60 s, the notice before it, got '1'"),
        (Slurm, {"pack": 0}, r"slurm\.pack: expected"),
        (Slurm, {"gpus": -1}, r"slurm\.gpus: expected"),
        (Slurm, {"at_once": 0}, r"slurm\.at_once: expected a whole number of at least 1, or null, got 0"),
        (Slurm, {"options": ("mem=3",)}, r"slurm\.options: expected options such as --mem=16G"),
        (Ray, {"gpus": -1.0}, r"ray\.gpus: expected a number of at least 0, got -1"),
        (Ray, {"gpus": 1.5}, r"ray\.gpus: expected a fraction of one GPU, or a whole number, got 1\.5"),
        (Ray, {"cpus": -0.5}, r"ray\.cpus: expected a number of at least 0, or null"),
        (Ray, {"probe_s": 0.0}, r"ray\.probe_s: expected a positive number of seconds"),
        (Ray, {"at_once": 0}, r"ray\.at_once: expected a whole number of at least 1"),
    ],
)
def test_wrong_settings_are_refused(spec: type[ExecutorSpec], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        spec(**fields)
