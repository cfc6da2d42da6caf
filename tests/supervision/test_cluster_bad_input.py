"""What a cluster, or this machine, cannot do for a study: one message, exit code 2, and nothing is submitted or started."""

from pathlib import Path

import pytest
from fake_ray import FakeRay
from fake_slurm import FakeSlurm

from addnorm import cli
from addnorm.store import StudyFolder

SLURM, RAY = ("--executor", "slurm"), ("--executor", "ray")
WIDE = ("--set", "training.batch=1024")
LONG = ("--set", "training.checkpoint_every=1000000", "--set", "training.steps=2000000")


@pytest.mark.parametrize(
    ("lacks", "arguments", "message"),
    [
        (
            "sbatch",
            SLURM,
            "executor slurm: expected a machine that submits to Slurm, got no command sbatch on the PATH.",
        ),
        ("ray", RAY, "executor ray: expected Ray, got no module ray; install it with: pip install 'addnorm[ray]'."),
        (None, (*SLURM, "--executor.partition", "gpu"), "executor.partition: expected one of high, low, got 'gpu'."),
        (None, (*WIDE, "--set", "training.devices=1024"), "training.devices: expected at most the "),
        (
            None,
            (*SLURM, "--executor.gpus", "1", "--set", "training.devices=2"),
            "training.devices: expected at most the GPUs of a job, 1, got 2. Raise executor.gpus.",
        ),
        (
            None,
            (*RAY, "--executor.gpus", "0.5", "--set", "training.devices=2"),
            "training.devices: expected at most the GPUs of a run, 0.5, got 2. Raise executor.gpus.",
        ),
        (
            None,
            (*RAY, "--executor.gpus", "2"),
            "executor: expected at most what one node of the cluster has, got CPU 1, GPU 2",
        ),
        (
            None,
            (*SLURM, "--set", "training.shards=4"),
            "training.shards: expected a power of two that divides the batch, got 4",
        ),
        (
            None,
            (*RAY, "--set", "training.shards=3"),
            "training.shards: expected a power of two that divides the batch, got 3",
        ),
        ("the folder", SLURM, "executor slurm: expected a folder that every node sees, got "),
        (
            "the folder",
            RAY,
            "executor ray: expected a study's folder and a Python that every node sees, got: node two ",
        ),
        (
            None,
            (*SLURM, *LONG, "--executor.time-limit", "2"),
            "executor.time_limit: expected at least one checkpoint interval, got 60 s of training: ",
        ),
    ],
)
def test_it_is_one_message_and_nothing_is_submitted(
    slurm: FakeSlurm,
    ray: FakeRay,
    lacks: str | None,
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    tiny_study_text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slurm.missing = "sbatch" if lacks == "sbatch" else None
    ray.not_installed = lacks == "ray"
    slurm.unseen = lacks == "the folder"
    ray.missing = "node two does not see the folder /x" if lacks == "the folder" else None
    file, out = tmp_path / "s.yaml", tmp_path / "out"
    file.write_text(tiny_study_text)
    assert cli.main(["run", str(file), "--out", str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("addnorm: ")
    assert message in error
    assert error.count("\n") == 1
    assert (slurm.arrays, slurm.queue, ray.created, ray.actors) == ([], {}, [], {})
    if (out / "study.json").exists():  # only a folder that is there can be looked for on other hosts
        assert lacks == "the folder"
        assert {status.state for status in StudyFolder(out).statuses()} == {"queued"}
