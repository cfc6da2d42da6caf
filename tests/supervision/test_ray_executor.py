"""The Ray executor with a cluster that is a few lines of this file."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay
from kills import wait_until

from addnorm import cli
from addnorm.errors import InputError
from addnorm.store import RunFolder, StudyFolder
from addnorm.supervision.executors import Work, _ray_actor
from addnorm.supervision.executors._ray_actor import Task, _work
from addnorm.supervision.executors._ray_cluster import RayCluster
from addnorm.supervision.executors.ray import Ray, RayExecutor
from addnorm.supervision.supervisor import supervise
from addnorm.training.exit_code import ExitCode


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    entries = [{"run": f"v, rate 1e-3-s{n}", "variant": "v", "seed": n, "steps": 9} for n in range(3)]
    return StudyFolder.create(tmp_path / "out", {"study": "demo", "plan_hash": "p", "runs": entries})


def executor(study: StudyFolder, **fields: Any) -> RayExecutor:
    return RayExecutor.of(Ray(**fields), Work(folder=study.path))


def name_in(actors: Mapping[str, Any], run: RunFolder) -> str:
    (name,) = (name for name in actors if name.endswith(f"/{run.name}"))
    return name


def test_every_run_is_an_actor_by_its_folder_and_name(
    ray: FakeRay, study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ADDNORM_CACHE": "/c", "ADDNORM_HOST": "login", "HF_HOME": "/h", "SECRET": "s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ADDNORM_STATE", raising=False)  # of the test session
    runs = study.runs()
    answers = executor(study, gpus=0.25, environment=("HF_HOME",)).start(runs)
    assert answers == {run.name: f"ray:{name_in(ray.actors, run)}" for run in runs}
    actor = ray.actors[name_in(ray.actors, runs[0])]
    assert actor["resources"] == {"CPU": 1.0, "GPU": 0.25}
    assert actor["command"][-1] == actor["folder"] == str(runs[0].path.absolute())
    given = {name: value for name, value in actor["environment"].items() if "THREADS" not in name}
    assert given == {
        "ADDNORM_CACHE": "/c",
        "HF_HOME": "/h",
        "ADDNORM_WORKER": answers[runs[0].name],
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert ray.asked == ["a"]  # the other node cannot train
    other = StudyFolder.create(study.path.with_name("other"), study.plan)
    assert name_in(ray.actors, runs[0]) not in executor(other).start(other.runs()[:1]).values()


def test_without_gpus_workers_see_none(ray: FakeRay, study: StudyFolder) -> None:
    executor(study).start(study.runs()[:1])
    (actor,) = ray.actors.values()
    assert actor["environment"]["CUDA_VISIBLE_DEVICES"] == ""
    assert ray.asked == ["a", "b"]


def test_a_waiting_actor_says_what_it_waits_for(ray: FakeRay, study: StudyFolder) -> None:
    run, starter = study.runs()[0], executor(study)
    starter.start([run])
    assert starter.poll([run])[run.name].note == "for a node with CPU 1, GPU 0 free, or about to begin"


def test_at_once_limits_the_actors(ray: FakeRay, study: StudyFolder) -> None:
    runs, starter = study.runs(), executor(study, at_once=2)
    assert list(starter.start(runs)) == [run.name for run in runs[:2]]
    assert starter.start(runs[2:]) == {}
    runs[0].mark("finished", step=9)
    assert starter.poll(runs[:1])[runs[0].name].phase == "ended"
    assert list(starter.start(runs[2:])) == [runs[2].name]


def test_a_code_of_an_earlier_attempt_is_not_believed(ray: FakeRay, study: StudyFolder) -> None:
    run, starter = study.runs()[0], executor(study)
    (study.path / "ray").mkdir()
    (study.path / "ray" / f"{run.name}.code").write_text("74\n")
    starter.start([run])
    ray.actors.clear()
    assert starter.poll([run])[run.name].code == ExitCode.STOPPED


def test_what_cannot_work_is_refused_before_anything_is_started(ray: FakeRay, study: StudyFolder) -> None:
    with pytest.raises(InputError, match=r"got CPU 1, GPU 2 for each run; the nodes have CPU 2, GPU 0; CPU 8, GPU 1\."):
        executor(study, gpus=2)
    with pytest.raises(InputError, match=r"training\.devices: expected at most the GPUs of a run, 0\.5, got 2"):
        RayExecutor.of(Ray(gpus=0.5), Work(folder=study.path, devices=2))
    ray.missing = "node two does not see the folder /x"
    with pytest.raises(InputError, match="that every node sees, got: node two does not see the folder /x"):
        supervise(study, executor(study), on_tick=lambda _: None)
    ray.not_installed = True
    with pytest.raises(
        InputError, match=r"expected Ray, got no module ray; install it with: pip install 'addnorm\[ray\]'"
    ):
        executor(study)
    assert ray.created == []
    assert list((study.path / "ray").iterdir()) == []


def a_task(folder: Path, script: str) -> dict[str, Any]:
    code = folder / "code"
    code.write_text("74\n")
    return {
        "actor": "a",
        "namespace": "n",
        "command": ("sh", "-c", script),
        "folder": str(folder),
        "code": str(code),
        "cwd": "/nowhere",
        "environment": {"NUMBER": "5"},
        "stopped": 75,
    }


def test_an_actor_runs_its_command_with_the_log_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("before\n")
    assert _work(Task(**a_task(tmp_path, "echo out; echo err >&2; exit $NUMBER"))) == 5
    assert (tmp_path / "log.txt").read_text() == "before\nout\nerr\n"
    assert not (tmp_path / "code").exists()  # that of the attempt before
    assert _work(Task(**a_task(tmp_path, "kill -9 $$"))) == -9
    with pytest.raises(FileNotFoundError):
        _work(Task(**a_task(tmp_path, "") | {"command": ("/no/python",)}))
    told = (tmp_path / "log.txt").read_text()
    assert told.endswith("could not start /no/python: [Errno 2] No such file or directory: '/no/python'\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels cannot tie a process to its parent")
def test_a_worker_dies_with_its_actor(tmp_path: Path) -> None:
    """By kill -9 too, which no code of the actor survives."""
    task = a_task(tmp_path, "echo $$ > $0/pid.new; mv $0/pid.new $0/pid; exec sleep 120")
    task["command"] = (*task["command"], str(tmp_path))
    program = (
        f"import runpy; actor = runpy.run_path({_ray_actor.__file__!r}); actor['_work'](actor['Task'](**{task!r}))"
    )
    actor = subprocess.Popen([sys.executable, "-S", "-c", program])
    wait_until((tmp_path / "pid").exists)
    status = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    assert status.exists()
    actor.kill()
    actor.wait()
    wait_until(lambda: not status.exists() or " Z " in status.read_text())


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "got '127.0.0.1:1', where nothing answers"),
        ("ray://head:10001", "expected HOST:PORT of a cluster's head node, got 'ray://head:10001'"),
        ("head", "expected HOST:PORT"),
        ("127.0.0.1:99999", "where nothing answers"),
    ],
)
def test_an_address_where_nothing_answers_is_refused_at_once(address: str, message: str) -> None:
    """Ray itself would try for minutes."""
    with pytest.raises(InputError, match=message):
        RayCluster(address)


def test_a_dry_run_prints_what_an_actor_would_be(
    tmp_path: Path, tiny_study_text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(tiny_study_text)
    options = ("--executor", "ray", "--executor.gpus", "0.25", "--executor.at-once", "2")
    assert cli.main(["run", "s.yaml", "--dry-run", *options]) == 0
    told = capsys.readouterr().out
    assert "# 6 detached actors, of which 2 work at the same time, on Ray at the default address.\n" in told
    assert "# Each: CPU 1, GPU 0.25; started again 3 times by Ray itself." in told
    assert told.endswith(f" -m addnorm.training.worker {tmp_path / 'runs' / 'tiny'}/RUN\n")
    assert os.listdir() == ["s.yaml"]
