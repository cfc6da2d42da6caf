"""A study on a real Slurm with two nodes, through everything that befalls jobs there."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import warm_jobs
from eight_runs import assert_as_calm, recorded_losses, study_file, wait_until
from kills import events, prepared, same_weights
from slurm_cluster import Cluster, packages
from warm_jobs import Supervisor

from addnorm import cli
from addnorm.store import RunFolder, StudyFolder
from addnorm.store.lines import read_lines
from addnorm.study.loading import load_study
from train_here import train_here

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

EXECUTOR = "{kind: slurm, poll_s: 0.5}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    cluster = Cluster(packages(request.config.cache.mkdir("slurm-packages")), folder)
    try:
        yield cluster
    finally:
        cluster.stop()  # whose jobs' processes end with it


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with its commands on this process's path."""
    for name, value in {**cluster.environment, "ADDNORM_HEARTBEAT_S": "0.3", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    return cluster


def jobs(cluster: Cluster, state: str) -> dict[int, str]:
    """Ids of the study's jobs in a state, by their place in the array."""
    told = cluster.ask("squeue", "-h", "-r", "-t", state, "-o", "%i|%N").split()
    return {int(line.partition("|")[0].partition("_")[2]): line for line in told if "_" in line}


def test_eight_runs_survive_whatever_befalls_their_jobs(
    here: Cluster, server: str, calm_eight: Path, tmp_path: Path
) -> None:
    out, study = tmp_path / "a folder", study_file(tmp_path, EXECUTOR)
    arguments = (study, "--out", str(out))
    first = Supervisor(server, str(tmp_path / "first.txt"), *arguments, environment={"TEST_PACE_S": "2"})
    wait_until(lambda: (out / "study.json").exists())
    runs = StudyFolder(out).runs()
    wait_until(lambda: len(jobs(here, "RUNNING")) == 8 and all(run.status().step >= 1 for run in runs))
    first.kill()
    at_work = {place: line.partition("|") for place, line in jobs(here, "RUNNING").items()}
    second_node = [place for place, (_, _, node) in at_work.items() if node == "n2"]
    told, cancelled, *_ = [place for place, (_, _, node) in at_work.items() if node == "n1"]
    assert len(second_node) == 4
    here.kill_node("n2")
    here.ask("scancel", "--signal=TERM", at_work[told][0])
    here.ask("scancel", at_work[cancelled][0])
    here.ask("sbatch", "--partition=high", "--nodelist=n1", "-n4", "--wrap=sleep 1", "--output=/dev/null")
    # Nobody supervises: what Slurm requeues goes on, the cancelled one does not.
    wait_until(lambda: len(events(runs[told], "end")) == 1 and told not in jobs(here, "RUNNING"))
    second = Supervisor(server, str(tmp_path / "second.txt"), *arguments, environment={"ADDNORM_HOST": "elsewhere"})
    here.start_node("n2")
    wait_until(lambda: started(out) == 2)
    with paused(out):
        third = Supervisor(server, str(tmp_path / "third.txt"), *arguments, environment={"ADDNORM_HOST": "login3"})
        assert third.wait(120) == 1
    assert "expected no other supervisor, got process" in (tmp_path / "third.txt").read_text()
    assert second.wait(120) == 0, (tmp_path / "second.txt").read_text()
    assert_as_calm(calm_eight, out)
    assert all(run.status().attempts > 1 for run in runs)
    log = read_lines(out / "supervisor.jsonl")[0]
    again = {entry["run"] for entry in [entry for entry in log if entry["type"] == "started"][8:]}
    # Slurm itself brings the others back, but for those that it held because the node's folder was not cleared.
    assert {runs[cancelled].name} <= again <= {runs[place].name for place in (cancelled, *second_node)}


def started(out: Path) -> int:
    """Number of supervisors that have worked on a study."""
    return sum(entry["type"] == "supervisor started" for entry in read_lines(out / "supervisor.jsonl")[0])


@contextmanager
def paused(out: Path) -> Iterator[None]:
    """The study's last supervisor, stopped for a while: it cannot be through before another one has looked."""
    pid = next(entry["supervisor"] for entry in reversed(read_lines(out / "supervisor.jsonl")[0]))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


RANKS = """
name: ranks
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 12, batch: 4, shards: 4, seq: 16, log_every: 3, eval_every: 6, eval_sequences: 8, checkpoint_every: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, dropout: 0.1, residual: rezero}
variants: {base: {}}
executor: {kind: slurm, poll_s: 0.5}
"""


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study that one rank trained here."""
    folder = tmp_path_factory.mktemp("one-rank")
    (folder / "ranks.yaml").write_text(RANKS)
    train_here(load_study(folder / "ranks.yaml"), folder / "one")
    return folder / "one"


@pytest.mark.ranks
def test_tasks_of_srun_on_two_nodes_are_the_ranks_of_one_run(
    here: Cluster, server: str, one_rank: Path, tmp_path: Path
) -> None:
    out = prepared(one_rank, tmp_path / "out")
    plan = {name: value for name, value in StudyFolder(one_rank).plan.items() if name != "format"}
    (run,) = StudyFolder.create(out, plan).runs()
    worker = (sys.executable, "-S", "-I", str(Path(warm_jobs.__file__)), server, "--devices", "2", str(run.path))
    noting = ("bash", "-c", 'echo $SLURMD_NODENAME >> "$0/nodes"; "$@"', str(out))
    here.ask("srun", "--nodes=2", "--ntasks=2", *noting, *worker)
    assert sorted((out / "nodes").read_text().split()) == ["n1", "n2"]
    assert same_weights(one_rank, out, run.name), run.log_path.read_text()
    assert recorded_losses(run) == recorded_losses(RunFolder(one_rank / run.name))
    assert run.env is not None
    assert run.env["ranks"] == 2
    assert run.status().attempts == 1


@pytest.mark.ranks
def test_a_job_of_two_ranks_that_is_told_to_stop_goes_on(
    here: Cluster, server: str, one_rank: Path, tmp_path: Path
) -> None:
    out, log = tmp_path / "out", tmp_path / "log.txt"
    arguments = (str(one_rank.parent / "ranks.yaml"), "--set", "training.devices=2", "--out", str(out))
    command = Supervisor(server, str(log), *arguments, environment={"TEST_PACE_S": "1"})
    wait_until((out / "study.json").exists)
    (run,) = StudyFolder(out).runs()
    wait_until(lambda: run.status().step >= 1)
    (job,) = jobs(here, "RUNNING").values()
    here.ask("scancel", "--signal=TERM", job.partition("|")[0])
    assert command.wait(120) == 0, log.read_text()
    assert run.status().attempts == 2
    assert same_weights(one_rank, out, run.name)
    assert recorded_losses(run) == recorded_losses(RunFolder(one_rank / run.name))


def test_packed_jobs_with_the_worker_command_itself(here: Cluster, calm_eight: Path, tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    options = ("--executor.pack", "2", "--executor.setup", "[export FROM_SETUP=1]", "--set", "seeds=[0]")
    assert cli.main(["run", study_file(tmp_path, EXECUTOR), "--out", str(out), *options, "--json"]) == 0
    runs = StudyFolder(out).runs()
    assert len(runs) == 2
    assert len(list(out.glob("slurm/*/*.out"))) == 1  # one job
    assert all(same_weights(calm_eight, out, run.name) for run in runs)
    assert all(run.status().attempts == 1 for run in runs)


def test_settings_that_slurm_refuses_leave_nothing(
    here: Cluster, calm_eight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = here.ask("squeue", "-h", "-t", "all", "-o", "%i")
    study = study_file(tmp_path, EXECUTOR)
    for option, message in {
        "partition=nope": "executor.partition: expected one of high, low, got 'nope'",
        "gpus=3": "expected settings that Slurm accepts, got: sbatch: error: Invalid generic resource",
        "cpus=64": "Requested node configuration is not available",
    }.items():
        arguments = [study, "--out", str(tmp_path / "no"), "--executor-set", option]
        assert cli.main(["run", *arguments]) == 2
        assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["eight.yaml"]
    assert here.ask("squeue", "-h", "-t", "all", "-o", "%i") == known
