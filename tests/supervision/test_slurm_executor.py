"""The Slurm executor with a scheduler that is a few lines of this file."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

from addnorm.errors import InputError, JobError
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.claim import Claims
from addnorm.store.lines import read_lines
from addnorm.supervision.executors import Work
from addnorm.supervision.executors import _slurm_commands as commands
from addnorm.supervision.executors.slurm import Slurm, SlurmExecutor
from addnorm.supervision.supervisor import supervise
from addnorm.training.exit_code import ExitCode


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    return made(tmp_path, 4)


def made(folder: Path, runs: int) -> StudyFolder:
    entries = [{"run": f"v, rate 1e-3-s{n}", "variant": "v", "seed": n, "steps": 9} for n in range(runs)]
    return StudyFolder.create(folder / "out", {"study": "demo", "plan_hash": "p", "runs": entries})


def executor(study: StudyFolder, **fields: Any) -> SlurmExecutor:
    return SlurmExecutor.of(Slurm(**{"poll_s": 1e-9, **fields}), Work(folder=study.path))


def names(runs: Sequence[RunFolder]) -> list[str]:
    return [run.name for run in runs]


def test_a_study_is_one_array(slurm: FakeSlurm, study: StudyFolder) -> None:
    runs = study.runs()
    starter = executor(study)
    assert starter.start(runs) == {run.name: f"slurm:10_{place}" for place, run in enumerate(runs)}
    assert [array for _, array in slurm.arrays] == ["0-3"]
    (batch,) = study.path.glob("slurm/*")
    assert slurm.arrays[0][0] == f"addnorm-{batch.name}"
    assert (batch / "runs").read_text().splitlines() == names(runs)
    assert {state.phase for state in starter.poll(runs).values()} == {"waiting"}
    assert starter.poll(runs[:1])[runs[0].name].note == "PENDING, Priority"
    slurm.run("10_2")
    assert starter.poll(runs)[runs[2].name].phase == "working"
    runs[2].mark("finished", step=9)
    assert starter.poll(runs)[runs[2].name].phase == "ended"


@pytest.mark.parametrize(
    ("fields", "arrays"),
    [
        ({}, ["0-9", "0-9", "0-4"]),
        ({"at_once": 7}, ["0-9%3", "0-9%2", "0-4%2"]),
        ({"at_once": 2}, ["0-9%1", "0-9%1"]),  # the third would make three at once
        ({"pack": 4}, ["0-6"]),
        ({"pack": 4, "at_once": 9}, ["0-6%2"]),
        ({"pack": 4, "at_once": 1}, ["0-6%1"]),
    ],
)
def test_arrays_are_cut_to_size_and_share_what_may_work_at_once(
    slurm: FakeSlurm, tmp_path: Path, fields: dict[str, Any], arrays: list[str]
) -> None:
    slurm.largest = 10
    study = made(tmp_path, 25)
    starter = executor(study, **fields)
    taken = starter.start(study.runs())
    assert [array for _, array in slurm.arrays] == arrays
    jobs = sum(int(array.partition("%")[0][2:]) + 1 for array in arrays)
    assert len(taken) == min(25, jobs * fields.get("pack", 1))
    assert len(set(taken.values())) == jobs
    if "at_once" in fields:
        assert starter.start(study.runs()[:1]) == {}


def test_another_supervisor_finds_the_jobs(slurm: FakeSlurm, study: StudyFolder) -> None:
    runs = study.runs()
    executor(study, pack=2).start(runs)
    slurm.run("10_1")
    del slurm.queue["10_0"]
    second = executor(study, pack=2)
    assert second.find(runs) == {runs[2].name: "slurm:10_1", runs[3].name: "slurm:10_1"}
    assert second.find(runs[2:]) == {}  # it knows them
    assert {state.phase for state in second.poll(runs[2:]).values()} == {"working"}


def test_a_folder_without_jobs_is_no_job(slurm: FakeSlurm, study: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that was killed between writing the array's folder and submitting it."""
    monkeypatch.setattr(commands, "submit", lambda script: (_ for _ in ()).throw(JobError("killed")))
    with pytest.raises(JobError, match="killed"):
        executor(study).start(study.runs())
    assert executor(study).find(study.runs()) == {}


def test_a_vanished_job_has_ended_only_by_an_answer_asked_for_after_it_was_submitted(
    slurm: FakeSlurm, study: StudyFolder
) -> None:
    runs = study.runs()
    starter = executor(study, poll_s=0.2)
    starter.start(runs[:1])
    assert starter.poll(runs[:1])[runs[0].name].phase == "waiting"
    starter.start(runs[1:2])
    slurm.queue.clear()
    asked = slurm.questions
    states = starter.poll(runs[:2])
    assert slurm.questions == asked + 1  # a name that was never asked for does not wait
    assert {state.phase for state in states.values()} == {"ended"}
    assert states[runs[0].name].note.startswith("job 10_0 has left the queue before its worker began, see ")
    assert states[runs[0].name].code == ExitCode.STOPPED  # its worker never began


def test_a_later_array_that_is_refused_leaves_the_others_at_work(
    slurm: FakeSlurm, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = study.runs()
    starter = executor(study)
    starter.start(runs[:2])
    monkeypatch.setattr(
        commands, "submit", lambda script: (_ for _ in ()).throw(JobError("QOSMaxSubmitJobPerUserLimit"))
    )
    assert [str(answer) for answer in starter.start(runs[2:]).values()] == ["QOSMaxSubmitJobPerUserLimit"] * 2
    assert {state.phase for state in starter.poll(runs[:2]).values()} == {"waiting"}


def test_a_job_that_no_node_could_start_is_cancelled_and_submitted_again(slurm: FakeSlurm, study: StudyFolder) -> None:
    run = study.runs()[0]
    starter = executor(study)
    starter.start([run])
    slurm.queue["10_0"] = ("PENDING", "launch failed requeued held", "", slurm.queue["10_0"][3])
    slurm.slow = True
    assert starter.poll([run])[run.name].phase == "waiting"
    assert slurm.cancelled == ["10_0"]
    del slurm.queue["10_0"]
    state = starter.poll([run])[run.name]
    assert (state.phase, state.note, state.code) == (
        "ended",
        "job 10_0: launch failed requeued held",
        ExitCode.STOPPED,
    )
    assert starter.start([run]) == {run.name: "slurm:11_0"}


def test_a_job_is_cancelled_once_between_two_looks_at_the_queue(slurm: FakeSlurm, study: StudyFolder) -> None:
    runs = study.runs()
    starter = executor(study, poll_s=60)
    starter.start(runs)
    slurm.slow = True
    for _ in range(2):
        starter.stop(runs)
    assert sorted(slurm.cancelled) == ["10_0", "10_1", "10_2", "10_3"]
    starter.kill(runs[:1])
    assert slurm.cancelled[4:] == ["10_0"]


def test_a_supervisor_submits_once_and_leaves_what_is_done(slurm: FakeSlurm, study: StudyFolder) -> None:
    runs = study.runs()
    runs[3].mark("finished", step=9)

    def work(fake: FakeSlurm, number: str) -> None:
        for run in runs[:3]:
            run.mark("finished", step=9)

    slurm.on_submit = work
    supervise(study, executor(study), on_tick=lambda _: None, tick_s=0.0)
    assert all((run.ending() or {})["state"] == "finished" for run in runs)
    assert [array for _, array in slurm.arrays] == ["0-2"]
    log = read_lines(study.path / "supervisor.jsonl")[0]
    assert [entry["worker"] for entry in log if entry["type"] == "started"] == [
        "slurm:10_0",
        "slurm:10_1",
        "slurm:10_2",
    ]


def test_a_supervisor_on_another_host_is_known_by_its_claim_where_its_lock_is_not_seen(
    slurm: FakeSlurm, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in study.runs():
        run.mark("finished", step=9)
    monkeypatch.setenv("ADDNORM_HEARTBEAT_S", "0.05")
    monkeypatch.setenv("ADDNORM_HOST", "login1")
    claim = Claims(study.claims_path).acquire()
    monkeypatch.setenv("ADDNORM_HOST", "login2")
    with pytest.raises(JobError, match=r"expected no other supervisor, got process \d+ on login1\."):
        supervise(study, executor(study), on_tick=lambda _: None, tick_s=0.0)
    claim._over.set()  # as by kill -9: it beats no more, and does not end
    assert len(supervise(study, executor(study), on_tick=lambda _: None, tick_s=0.0)) == 4


def test_waiting_jobs_are_shown_with_the_reason(slurm: FakeSlurm, study: StudyFolder) -> None:
    shown: list[tuple[str, str | None]] = []

    def on_tick(statuses: Any) -> None:
        shown.append((statuses[0].state, statuses[0].reason))
        if len(shown) == 2:
            for run in study.runs():
                run.mark("finished", step=9)

    supervise(study, executor(study), on_tick=on_tick, tick_s=0.0)
    assert shown[1] == ("queued", "slurm:10_0: PENDING, Priority")


def test_what_cannot_work_is_refused_before_anything_is_submitted(slurm: FakeSlurm, study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"executor\.partition: expected one of high, low, got 'gpu'\."):
        executor(study, partition="gpu")
    slurm.refuses = "sbatch: 1\nsbatch: error: Invalid account"
    with pytest.raises(InputError, match="expected settings that Slurm accepts, got: sbatch: error: Invalid account"):
        executor(study, account="nobody")
    slurm.refuses = None
    slurm.unseen = True
    with pytest.raises(InputError, match=r"expected a folder that every node sees, got .*out, which is not seen by n1"):
        supervise(study, executor(study), on_tick=lambda _: None)
    slurm.missing = "sbatch"
    with pytest.raises(InputError, match="expected a machine that submits to Slurm, got no command sbatch on the PATH"):
        executor(study)
    assert slurm.arrays == []
    assert list(study.path.glob("slurm/*")) == []


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("10", 600), ("10:30", 630), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("1-0:0:5", 86405)],
)
def test_time_limits_are_slurms(limit: str, seconds: int) -> None:
    assert Slurm(time_limit=limit, notice_s=60).longest_attempt_s == seconds - 60


@pytest.mark.parametrize(
    ("codes", "stops", "requeued"),
    [
        ([0, 0], [], False),
        ([75, 0], [], True),
        ([1, 75], [], True),  # one crashed and one was stopped: the job comes back for the second
        ([137, 1], [], False),
        ([75, 0], [0], False),
        ([75, 75], [0], True),
    ],
)
def test_the_script_comes_back_for_workers_that_were_stopped(
    slurm: FakeSlurm, study: StudyFolder, tmp_path: Path, codes: list[int], stops: list[int], requeued: bool
) -> None:
    """The scripts themselves, with a `srun` and a `scontrol` that note how they were called."""
    runs = study.runs()
    for place in stops:
        runs[2 + place].request_stop()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text('#!/bin/bash\necho "$@" >> "$ADDNORM_BATCH/requeued"\n')
    (tools / "srun").write_text(
        '#!/bin/bash\nworst=0\nwhile [ "${1#--}" != "$1" ]; do shift; done\nfor SLURM_PROCID in 0 1; do\n'
        '  export SLURM_PROCID; "$@"; code=$?; [ $code -gt $worst ] && worst=$code\ndone\nexit $worst\n'
    )
    worker = tools / "worker"
    worker.write_text('#!/bin/bash\necho "$ADDNORM_WORKER $OMP_NUM_THREADS $MARK"\nexit $(cat "$1/code")\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for run, code in zip(runs[2:], codes, strict=True):
        (run.path / "code").write_text(str(code))
    spec = Slurm(pack=2, setup=("export MARK=set",), poll_s=1e-9)
    SlurmExecutor(spec, Work(folder=study.path, threads=3, command=[str(worker)])).start(runs)
    (batch,) = study.path.glob("slurm/*")
    job = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "12"}
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", str(batch / "array.sh")], env=os.environ | path | job, check=False)
    assert done.returncode == max(codes)
    assert [int((batch / f"{place}.code").read_text()) for place in (2, 3)] == codes
    assert runs[2].log_path.read_text() == "slurm:12_1.0 3 set\n"
    assert runs[3].log_path.read_text() == "slurm:12_1.1 3 set\n"
    told = (batch / "requeued").read_text() if (batch / "requeued").exists() else None
    assert told == ("requeue 12_1\n" if requeued else None)


def test_a_node_that_does_not_see_the_folder_says_so(slurm: FakeSlurm, study: StudyFolder) -> None:
    executor(study).start(study.runs())
    (batch,) = study.path.glob("slurm/*")
    script = (batch / "array.sh").read_text()
    (batch / "runs").unlink()
    job = os.environ | {"SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(["bash"], input=script, env=job, text=True, check=False, capture_output=True)
    assert done.returncode == 66
    assert f"does not see {batch.absolute()}" in done.stderr


def test_the_queue_is_not_asked_more_often_than_set(slurm: FakeSlurm, study: StudyFolder) -> None:
    runs = study.runs()
    starter = executor(study, poll_s=3600)
    starter.start(runs)
    began = time.monotonic()
    for _ in range(5):
        starter.poll(runs)
        starter.find(runs)
    assert slurm.questions == 1
    assert time.monotonic() - began < 3600
