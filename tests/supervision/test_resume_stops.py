"""Stopping in an orderly way, and several processes that want the same folder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kills import STUDY, events, prepared, same_weights, wait_until
from warm import CALM, Trouble, begin_run, begin_worker

from addnorm.store import RunFolder, StudyFolder
from addnorm.training.exit_code import ExitCode

SLOW = Trouble(pace_s=0.03)


def states(out: Path) -> list[str]:
    return [entry["state"] for entry in StudyFolder(out).status()["runs"]]


def steps(out: Path) -> list[int]:
    return [entry["step"] for entry in StudyFolder(out).status()["runs"]]


def all_identical(calm: Path, out: Path) -> bool:
    return all(same_weights(calm, out, run.name) for run in StudyFolder(calm).runs())


def at_work(out: Path, step: int) -> bool:
    return (out / "study.json").exists() and max(steps(out)) >= step


def untrained(calm: Path, out: Path) -> StudyFolder:
    """The study's folder as it is before the first step."""
    prepared(calm, out)
    return StudyFolder.create(out, {name: value for name, value in StudyFolder(calm).plan.items() if name != "format"})


@pytest.mark.thorough
def test_ctrl_c_stops_a_started_command_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """With processes as a user has them until the stop; what they wrote is gone on with to the bytes of warm ones."""
    out, study = tmp_path / "a folder", tmp_path / "one.yaml"
    study.write_text(STUDY.replace("seeds: [0, 1]", "seeds: [0]").replace("  v4m5: {preset: v4m5}\n", ""))
    setting = ("--set", "training.steps=400")
    undisturbed = begin_run(tmp_path / "calm.txt", CALM, str(study), *setting, "--out", str(tmp_path / "calm"))
    undisturbed.join()
    code = "import sys; from addnorm.cli import main; sys.exit(main())"
    arguments = (str(study), *setting, "--out", str(out), "--workers", "1")
    command = [sys.executable, "-c", code, "run", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: at_work(out, 4), 120)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "0 of 1 runs finished" in told
    assert "To resume, give the same command again:" in told
    assert f"addnorm run {study} --set training.steps=400 --out '{out}' --workers 1" in told
    assert states(out) == ["interrupted"]
    (run,) = StudyFolder(out).runs()
    (end,) = events(run, "end")
    assert end["reason"] == "stopped on request"
    assert (run.checkpoints_path / f"step-{end['step']:08d}.pt").exists()
    again = begin_run(tmp_path / "again.txt", CALM, *arguments)
    again.join()
    assert again.exitcode == 0
    assert same_weights(tmp_path / "calm", out, run.name)
    assert run.status().attempts == 2


def test_a_stopped_study_goes_on_to_the_same_bytes(calm: Path, tmp_path: Path) -> None:
    out, log = prepared(calm, tmp_path / "out"), tmp_path / "log.txt"
    arguments = (str(calm.parent / "storm.yaml"), "--out", str(out), "--workers", "2")
    for step, number in ((3, signal.SIGINT), (17, signal.SIGTERM)):
        process = begin_run(log, SLOW, *arguments)
        wait_until(lambda step=step: at_work(out, step))  # type: ignore[misc]
        os.kill(process.pid or 0, number)
        process.join()
        assert process.exitcode == 1
        assert states(out) == ["interrupted", "interrupted", "queued", "queued"]
        assert "To resume, give the same command again" in log.read_text()
    process = begin_run(log, CALM, *arguments)
    process.join()
    assert process.exitcode == 0
    assert all_identical(calm, out)
    for run in StudyFolder(out).runs():
        assert events(run, "replayed") == []  # an orderly stop repeats nothing
        written = [s for e in events(run, "train") for s in range(e["first"], e["first"] + len(e["losses"]))]
        assert written == list(range(1, 33))


def test_a_second_supervisor_says_who_is_there(calm: Path, tmp_path: Path) -> None:
    out, log = prepared(calm, tmp_path / "out"), tmp_path / "second.txt"
    arguments = (str(calm.parent / "storm.yaml"), "--out", str(out), "--workers", "2")
    first = begin_run(tmp_path / "first.txt", SLOW, *arguments)
    wait_until(lambda: at_work(out, 2))
    second = begin_run(log, CALM, *arguments)
    second.join()
    assert second.exitcode == 1
    assert f"expected no other supervisor, got process {first.pid}" in log.read_text()
    first.join()
    assert first.exitcode == 0
    assert all_identical(calm, out)
    assert [entry["attempts"] for entry in StudyFolder(out).status()["runs"]] == [1] * 4


def test_workers_that_start_at_once_share_out_the_runs(calm: Path, tmp_path: Path) -> None:
    """Two for each of four runs that nobody has begun."""
    study = untrained(calm, tmp_path / "out")
    workers = [begin_worker(run.path) for run in study.runs() * 2]
    for worker in workers:
        worker.join()
    codes = [worker.exitcode for worker in workers]
    assert codes.count(ExitCode.DONE) >= 4
    assert set(codes) <= {ExitCode.DONE, ExitCode.STOPPED}
    assert all_identical(calm, study.path)
    assert [entry["attempts"] for entry in study.status()["runs"]] == [1] * 4


def test_of_eight_workers_for_one_run_one_works_and_the_others_leave(calm: Path, tmp_path: Path) -> None:
    run: RunFolder = untrained(calm, tmp_path / "out").runs()[0]
    workers = [begin_worker(run.path, SLOW) for _ in range(8)]
    for worker in workers:
        worker.join()
    codes = sorted(int(worker.exitcode or 0) for worker in workers)
    assert codes == [ExitCode.DONE, *[ExitCode.STOPPED] * 7]
    log = run.log_path.read_text()
    assert log.count("expected a run that has no worker") == 7
    assert "Traceback" not in log
    assert same_weights(calm, run.path.parent, run.name)
    assert [event["attempt"] for event in events(run, "start")] == [1]
