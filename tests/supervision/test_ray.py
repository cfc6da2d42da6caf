"""A study on a real Ray cluster with two nodes, through everything that befalls actors there."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from eight_runs import assert_as_calm, study_file, wait_until
from kills import events
from ray_nodes import RayNodes, actor_of, commands, ray_nodes, strike
from warm_jobs import Supervisor

from addnorm.store import RunFolder, StudyFolder
from addnorm.store.lines import read_lines

pytestmark = [pytest.mark.ray, pytest.mark.thorough]


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with ray_nodes() as cluster:
        yield cluster


def executor(nodes: RayNodes, gpus: float = 0.25) -> str:
    return f"{{kind: ray, address: '{nodes.address}', gpus: {gpus}, environment: [TEST_PACE_S]}}"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADDNORM_HEARTBEAT_S", "0.3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.usefixtures("environment")
def test_eight_runs_survive_whatever_befalls_their_actors(
    nodes: RayNodes, server: str, calm_eight: Path, tmp_path: Path
) -> None:
    out, study = tmp_path / "a folder", study_file(tmp_path, executor(nodes))
    arguments = (study, "--out", str(out))
    first = Supervisor(server, str(tmp_path / "first.txt"), *arguments, environment={"TEST_PACE_S": "2"})
    wait_until((out / "study.json").exists)
    runs = StudyFolder(out).runs()
    wait_until(lambda: all(run.status().step >= 1 for run in runs))
    on_head, on_second = [], []
    for run in runs:
        (command,) = commands(run.path)
        (on_second if nodes.is_on_second(actor_of(command)) else on_head).append((run, command))
    assert (len(on_head), len(on_second)) == (4, 4)
    log = read_lines(out / "supervisor.jsonl")[0]
    actors = {entry["run"]: entry["worker"].removeprefix("ray:") for entry in log if entry["type"] == "started"}

    first.kill()
    nodes.remove_second()
    (told, command), (killed, other_command), (crashed, third_command), (dropped, _) = on_head
    strike(command, signal.SIGTERM)
    strike(actor_of(other_command))
    strike(third_command)
    nodes.ask(f"ray.kill(ray.get_actor({actors[dropped.name]!r}, namespace='addnorm'))")  # somebody else, for good
    # Nobody supervises: Ray itself goes on with what it started, where there is room.
    wait_until(lambda: told.ending() is not None and killed.ending() is not None)
    assert len(events(told, "end")) == 2  # it saved a checkpoint when it was told to stop
    assert [run.status().attempts for run in (told, killed)] == [2, 2]
    assert [run.status().state for run in (crashed, dropped)] == ["interrupted", "interrupted"]

    second = Supervisor(server, str(tmp_path / "second.txt"), *arguments, environment={"ADDNORM_HOST": "elsewhere"})
    nodes.add_second()
    assert second.wait(180) == 0, (tmp_path / "second.txt").read_text()
    assert_as_calm(calm_eight, out)
    assert all(run.status().attempts == 2 for run in runs)
    again = [entry["run"] for entry in read_lines(out / "supervisor.jsonl")[0] if entry["type"] == "started"][8:]
    assert sorted(again) == sorted(run.name for run in (crashed, dropped))  # Ray brought the others back


@pytest.mark.usefixtures("environment")
def test_a_stop_leaves_no_actor(nodes: RayNodes, server: str, tmp_path: Path) -> None:
    out, study = tmp_path / "out", study_file(tmp_path, executor(nodes, gpus=1.0))
    arguments = (study, "--out", str(out), "--set", "seeds=[0, 1]")
    command = Supervisor(server, str(tmp_path / "log.txt"), *arguments, environment={"TEST_PACE_S": "2"})
    wait_until(lambda: sum(run.status().step >= 1 for run in _runs(out)) == 2)  # the other two wait for a GPU
    command.interrupt()
    assert command.wait(120) == 1, (tmp_path / "log.txt").read_text()
    runs = _runs(out)
    assert sorted(run.status().state for run in runs) == ["interrupted", "interrupted", "queued", "queued"]
    assert not any(commands(run.path) for run in runs)
    assert nodes.ask(
        "names = {entry['name'] for entry in ray.util.list_named_actors(all_namespaces=True)}\n"
        f"print(sorted(name for name in names if name.endswith({tuple(run.name for run in runs)})))"
    ) == ["[]"]


@pytest.mark.usefixtures("environment")
def test_what_cannot_work_is_one_message_and_starts_nothing(nodes: RayNodes, server: str, tmp_path: Path) -> None:
    study = study_file(tmp_path, executor(nodes))
    log = tmp_path / "log.txt"
    command = Supervisor(server, str(log), study, "--out", str(tmp_path / "no"), "--executor.gpus=2", environment={})
    assert command.wait(120) == 2
    assert log.read_text() == (
        "addnorm: executor: expected at most what one node of the cluster has, got CPU 1, GPU 2 for each run; the nodes "
        "have CPU 4, GPU 1. Lower executor.gpus, executor.cpus or training.devices.\n"
    )
    assert not (tmp_path / "no").exists()


def test_nodes_tell_what_they_do_not_see(nodes: RayNodes, tmp_path: Path) -> None:
    told = nodes.ask(
        "import os; from pathlib import Path; from addnorm.supervision.executors._ray_cluster import RayCluster\n"
        f"cluster, folder = RayCluster({nodes.address!r}), {str(tmp_path)!r}\n"
        "mine = f'/proc/self/fd/{os.open(folder, os.O_RDONLY)}'\n"  # leads elsewhere in every other process
        "for place, program in ((folder, '/bin/sh'), (mine, '/bin/sh'), (folder, '/no/python')):\n"
        "    print(cluster.blind(cluster.nodes(), Path(place), program, 60.0))\n"
        "import socket; other = socket.create_server(('127.0.0.1', 0))\n"
        "try: RayCluster(f'127.0.0.1:{other.getsockname()[1]}')\n"
        "except Exception as error: print(error)\n"
    )
    assert told[0] == "None"
    assert " does not see the folder /proc/self/fd/" in told[1]
    assert told[2].endswith(" does not see the program /no/python")
    assert told[3].startswith(f"executor.address: expected '{nodes.address}', which this program has joined, got '")
    assert list(tmp_path.iterdir()) == []


def _runs(out: Path) -> list[RunFolder]:
    return StudyFolder(out).runs() if (out / "study.json").exists() else []
