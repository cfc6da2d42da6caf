"""One run on several devices: the same bits for 1, 2 and 4 ranks, through stops and kills."""

import os
import signal
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
import torch
from kills import events, prepared, wait_until
from warm import CALM, Trouble, begin_run, begin_worker

from addnorm.errors import InputError
from addnorm.store import RunFolder, StudyFolder
from addnorm.supervision.executors import Work
from addnorm.supervision.executors.local import LocalExecutor
from addnorm.supervision.executors.slurm import Slurm, SlurmExecutor
from addnorm.training.exit_code import ExitCode
from addnorm.training.ranks import joined_place, meeting_store
from sampled import sampled

pytestmark = pytest.mark.ranks

STUDY = """
name: ranks
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training: {steps: 12, batch: 4, shards: 4, seq: 16, log_every: 3, eval_every: 6, eval_sequences: 10, checkpoint_every: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16, dropout: 0.1, residual: rezero}
variants: {base: {}}
"""
Curves = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the study that one rank trained; read it only."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "ranks.yaml").write_text(STUDY)
    process = begin_run(folder / "log.txt", CALM, str(folder / "ranks.yaml"), "--out", str(folder / "single"))
    process.join()
    assert process.exitcode == 0, (folder / "log.txt").read_text()
    return folder / "single"


def run_of(out: Path) -> RunFolder:
    (run,) = StudyFolder(out).runs()
    return run


def untrained(single: Path, out: Path) -> RunFolder:
    prepared(single, out)
    plan = {name: value for name, value in StudyFolder(single).plan.items() if name != "format"}
    StudyFolder.create(out, plan)
    return run_of(out)


def result(out: Path) -> tuple[str, Curves]:
    """Hash of the weights, and every loss, gradient norm and evaluation."""
    run = run_of(out)
    ending = run.ending()
    assert ending is not None, run.log_path.read_text()
    steps: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for event in events(run, "train"):
        for place, pair in enumerate(zip(event["losses"], event["grad_norms"], strict=True)):
            steps["train", event["first"] + place] = pair
    for event in events(run, "eval"):
        steps["eval", event["step"]] = (event["loss"], event["accuracy"])
    return ending["content_hash"], sorted(steps.items())


def joined(*processes: BaseProcess) -> list[int | None]:
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


@pytest.mark.parametrize(("devices", "parallel"), sampled(3, [(2, "replicated"), (4, "replicated"), (4, "sharded")]))
def test_ranks_that_the_worker_starts_train_to_the_bits_of_one(
    single: Path, tmp_path: Path, devices: int, parallel: str
) -> None:
    run = untrained(single, tmp_path / "out")
    options = ("--devices", str(devices), *(["--sharded"] if parallel == "sharded" else []))
    assert joined(begin_worker(run.path, CALM, options)) == [ExitCode.DONE], run.log_path.read_text()
    assert result(tmp_path / "out") == result(single)
    assert [(run.env or {})[name] for name in ("ranks", "parallel")] == [devices, parallel]
    assert len(result(single)[1]) == 12 + 2


def test_a_run_whose_weights_are_shared_out_stops_and_goes_on_with_all_on_one_device(
    single: Path, tmp_path: Path
) -> None:
    run = untrained(single, tmp_path / "out")
    process = begin_worker(run.path, Trouble(pace_s=0.05), ("--devices", "2", "--sharded"))
    wait_until(lambda: run.status().step >= 3, 60)
    run.stop_path.touch()
    assert joined(process) == [ExitCode.STOPPED], run.log_path.read_text()
    assert [(run.env or {})[name] for name in ("ranks", "parallel")] == [2, "sharded"]
    assert run.status().step < 12
    run.stop_path.unlink()
    assert joined(begin_worker(run.path)) == [ExitCode.DONE], run.log_path.read_text()
    assert result(tmp_path / "out") == result(single)
    assert run.status().attempts == 2


def test_a_run_stopped_on_two_devices_goes_on_with_one(single: Path, tmp_path: Path) -> None:
    out, log = prepared(single, tmp_path / "out"), tmp_path / "log.txt"
    study = tmp_path / "open.yaml"
    study.write_text(STUDY.replace(" shards: 4,", ""))  # two devices choose 4, and one keeps it
    arguments = (str(study), "--out", str(out), "--set")
    process = begin_run(log, Trouble(pace_s=0.05), *arguments, "training.devices=2")
    wait_until(lambda: (out / "study.json").exists() and run_of(out).status().step >= 3)
    os.kill(process.pid or 0, signal.SIGTERM)
    assert joined(process) == [1]
    assert run_of(out).status().state == "interrupted"
    assert joined(begin_run(log, CALM, *arguments, "training.devices=1")) == [0], log.read_text()
    assert result(out) == result(single)
    assert run_of(out).status().attempts == 2
    assert events(run_of(out), "replayed") == []


@pytest.mark.parametrize(("before", "after"), sampled(2, [(2, 1), (1, 2)]))
def test_steps_of_one_number_of_ranks_are_compared_when_another_repeats_them(
    single: Path, tmp_path: Path, before: int, after: int
) -> None:
    run = untrained(single, tmp_path / "out")
    dies = Trouble(befalls={run.name: "dies"}, at=6)
    assert joined(begin_worker(run.path, dies, ("--devices", str(before)))) == [-signal.SIGKILL]
    assert joined(begin_worker(run.path, CALM, ("--devices", str(after)))) == [ExitCode.DONE], run.log_path.read_text()
    assert [(event["first"], event["last"], event["equal"]) for event in events(run, "replayed")] == [(5, 6, True)]
    assert result(tmp_path / "out") == result(single)


def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bits(single: Path, tmp_path: Path) -> None:
    out, log = prepared(single, tmp_path / "out"), tmp_path / "log.txt"
    trouble = Trouble(befalls={run_of(single).name: "rank dies"}, at=6)
    study = str(single.parent / "ranks.yaml")
    assert joined(begin_run(log, trouble, study, "--out", str(out), "--set", "training.devices=2")) == [0]
    assert result(out) == result(single)
    assert run_of(out).status().attempts == 2
    assert "another rank of the run has ended" in run_of(out).log_path.read_text()


def test_ranks_that_srun_starts_join_and_leave_a_finished_run(single: Path, tmp_path: Path) -> None:
    run = untrained(single, tmp_path / "out")
    for state in (0, 1):  # the second time, the run is finished: rank 0 tells the other one
        tasks = [{"SLURM_NTASKS": "2", "SLURM_PROCID": str(n), "SLURM_STEP_ID": str(state)} for n in range(2)]
        ranks = [begin_worker(run.path, CALM, ("--devices", "2"), environment) for environment in tasks]
        assert joined(*ranks) == [ExitCode.DONE] * 2, run.log_path.read_text()
    assert result(tmp_path / "out") == result(single)
    assert run.status().attempts == 1
    assert list(run.path.glob(".ranks*")) == []


def test_a_rank_that_comes_before_rank_0_has_claimed_the_run_is_met(single: Path, tmp_path: Path) -> None:
    """Its entry was lost with the temporary files that the claim removes, and both waited for each other."""
    run = untrained(single, tmp_path / "out")
    (run.path / ".ranks-9-0-0").touch()  # of ranks that were killed
    tasks = [{"SLURM_NTASKS": "2", "SLURM_PROCID": str(n)} for n in range(2)]
    first = begin_worker(run.path, CALM, ("--devices", "2"), tasks[1])
    wait_until(lambda: (run.path / ".ranks-0-0-0").exists() and (run.path / ".ranks-0-0-0").stat().st_size > 30)
    second = begin_worker(run.path, CALM, ("--devices", "2"), tasks[0])
    assert joined(first, second) == [ExitCode.DONE] * 2, run.log_path.read_text()
    assert result(tmp_path / "out") == result(single)
    assert list(run.path.glob(".ranks*")) == []


def part_at_once(folder: Path, times: int, together: Barrier) -> None:
    for number in range(times):
        store = meeting_store(folder / f"meeting{number}")
        together.wait()
        del store


@pytest.mark.thorough  # twenty meetings of processes
def test_ranks_that_part_at_once_leave_no_file(tmp_path: Path) -> None:
    """With the number of workers given, one meeting in thirty left its file."""
    context = get_context("spawn")
    together = context.Barrier(2)
    ranks = [context.Process(target=part_at_once, args=(tmp_path, 300, together)) for _ in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0]
    assert list(tmp_path.iterdir()) == []


class TestPlace:
    RUN = Path("runs/a")

    def test_of_torchrun(self) -> None:
        environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node0"}
        place = joined_place(self.RUN, 1, environment)
        assert place is not None
        assert (place.rank, place.size, place.local, place.meeting) == (5, 8, 1, None)

    def test_tasks_of_srun_that_are_runs_of_their_own_are_no_ranks(self) -> None:
        environment = {"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}
        assert joined_place(self.RUN, 1, environment) is None
        assert joined_place(self.RUN, 2, environment) is None
        assert joined_place(self.RUN, 4, environment) is not None

    def test_three_ranks_are_refused(self) -> None:
        environment = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "node0"}
        with pytest.raises(InputError, match="expected a power of two of ranks, got 3"):
            joined_place(self.RUN, 1, environment)


class TestExecutors:
    def test_more_devices_than_cores_are_refused(self) -> None:
        cores = len(os.sched_getaffinity(0))
        devices = 1 << cores.bit_length()
        with pytest.raises(
            InputError, match=f"training.devices: expected at most the {cores} CPU cores.*got {devices}"
        ):
            LocalExecutor.create(devices=devices)

    def test_gpus_are_shared_out_in_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 5)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        executor = LocalExecutor.create(devices=2)
        assert (executor.slots, executor.cuda_devices) == (2, ("0,1", "2,3"))
        with pytest.raises(InputError, match="expected at most the 5 GPUs of this machine, got 8"):
            LocalExecutor.create(devices=8)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [({"gpus": 1}, "expected at most the GPUs of a job, 1, got 2"), ({"pack": 2}, "executor.pack: expected 1")],
    )
    def test_jobs_of_slurm_must_hold_the_devices(
        self, fields: dict[str, int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(SlurmExecutor, "obstacle", classmethod(lambda cls: None))
        with pytest.raises(InputError, match=message):
            SlurmExecutor.of(Slurm(**fields), Work(folder=tmp_path, devices=2))  # type: ignore[arg-type]
