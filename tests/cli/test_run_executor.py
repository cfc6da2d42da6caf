"""The executor's options of `addnorm run`, and executors in study files."""

import json
import os
import shlex
from pathlib import Path

import pytest

import addnorm
from addnorm import cli
from addnorm.cli.run import Options, _same_command, with_fields
from addnorm.errors import InputError
from addnorm.store import StudyFolder
from addnorm.study.loading import load_study
from addnorm.supervision.executors import _slurm_commands, ray
from addnorm.supervision.executors.local import Local
from addnorm.supervision.executors.slurm import Slurm
from addnorm.supervision.prepared import require_checkpoint_in_time
from addnorm.supervision.run import executor_spec
from train_here import workers_here

EXECUTOR = "executor: {kind: slurm, partition: gpu, at_once: 8}\n"


@pytest.fixture
def file(tmp_path: Path, tiny_study_text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A study file, in the present folder, that names an executor."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(tiny_study_text + EXECUTOR)
    return "s.yaml"


def test_a_file_names_an_executor_that_options_and_arguments_change(file: str) -> None:
    study = load_study(file)
    assert study.executor == Slurm(partition="gpu", at_once=8)
    assert executor_spec(study, None, None) == study.executor
    assert executor_spec(study, "slurm", 3) == Slurm(partition="gpu", at_once=3)
    assert executor_spec(study, "local", 3) == Local(at_once=3)
    assert executor_spec(study, Slurm(gpus=1), None) == Slurm(gpus=1)
    fields = ("time_limit=12:00:00", "gpus=2", "setup=[module load cuda]", "partition=0123")
    assert with_fields(study.executor, fields) == Slurm(
        partition="0123", at_once=8, time_limit="12:00:00", gpus=2, setup=("module load cuda",)
    )
    changed = load_study(file, settings=["executor.partition=low"])
    assert changed.executor == Slurm(partition="low", at_once=8)


def test_no_result_depends_on_the_executor(file: str, tmp_path: Path) -> None:
    """A study that was begun on a cluster is continued here: the plan is the same."""
    with workers_here():
        assert cli.main(["run", file, "--executor", "local", "--set", "seeds=[0]", "--out", "out", "--json"]) == 0
    plan = StudyFolder("out").plan
    assert "slurm" not in json.dumps(plan)
    study = load_study(file, settings=["executor=local", "seeds=[0]"])
    with workers_here():
        assert addnorm.run(study, out="out").plan_hash == plan["plan_hash"]


def test_a_dry_run_prints_the_script_and_leaves_nothing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--executor.time-limit=2:00:00", "--executor.pack", "2", "--executor.options", "[--mem=9G]")
    assert cli.main(["run", file, "--dry-run", *options]) == 0
    told = capsys.readouterr().out
    for line in (
        "--array=0-2%4",  # six runs in pairs, four of at most eight at once
        "--partition=gpu",
        "--time=2:00:00",
        "--signal=TERM@60",
        "--mem=9G",
        "--requeue",
    ):
        assert f"#SBATCH {line}\n" in told
    assert f"ADDNORM_STUDY={Path('runs/tiny').absolute()}" in told
    assert os.listdir() == [file]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--executor", "slrum"], "no executor 'slrum'. Did you mean 'slurm'? Known: local, ray, slurm"),
        (["--executor.partitoin", "x"], "--executor: Slurm has no field 'partitoin', did you mean 'partition'?"),
        (["--executor.gpus", "many"], "--executor.gpus: expected a whole number, got 'many'"),
        (["--executor.gpus"], "--executor.gpus: expected a field and its value"),
        (["--executor-set", "gpus"], "--executor-set: expected FIELD=VALUE, got 'gpus'"),
        (["--executor", "local", "--executor.gpus", "1"], "--executor: Local has no field 'gpus'"),
        (
            ["--executor.time_limit", "1"],
            "--executor.time_limit: expected more than 60 s, the notice before it, got '1'",
        ),
        (["--executor", "local", "--dry-run"], "executor: expected one that submits a script, got 'local'"),
        (["--workers", "0"], "workers: expected a whole number of at least 1, got 0"),
        (["--executor", "ray"], "executor ray: expected Ray, got no module ray; install it with: pip install"),
        ([], "executor slurm: expected a machine that submits to Slurm, got no command sbatch on the PATH"),
    ],
)
def test_wrong_options_are_one_message(
    file: str,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_slurm_commands, "missing_command", lambda: "sbatch")
    monkeypatch.setattr(ray, "missing_module", lambda: True)
    assert cli.main(["run", file, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert os.listdir() == [file]


def test_a_wrong_executor_in_a_file_is_told_with_its_place(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text(Path(file).read_text().replace("at_once: 8", "at_onec: 8"))
    assert cli.main(["run", file]) == 2
    assert "s.yaml: $.executor: Slurm has no field 'at_onec', did you mean 'at_once'?" in capsys.readouterr().err


def test_the_command_to_resume_has_the_executor() -> None:
    options = Options(study="s.yaml", executor="slurm", executor_set=("setup=[module load cuda]", "gpus=1"))
    command = _same_command(Path("out"), options)
    assert shlex.split(command)[3:] == [
        *("--out", "out", "--executor", "slurm"),
        *("--executor.setup", "[module load cuda]", "--executor.gpus", "1"),
    ]


def test_doctor_tells_which_executors_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_slurm_commands, "missing_command", lambda: "squeue")
    monkeypatch.setattr(ray, "missing_module", lambda: True)
    assert cli.main(["doctor", "--dir", str(tmp_path), "--json"]) == 0
    detail = json.loads(capsys.readouterr().out)["executors"]
    assert detail == {
        "ok": True,
        "detail": "local can be used; ray cannot: no module ray; install it with: pip install 'addnorm[ray]'; slurm cannot: "
        "no command squeue on the PATH",
    }


def test_a_time_limit_shorter_than_a_checkpoint_interval_is_refused(finished: Path, tiny_study_text: str) -> None:
    file = finished.parent / "limit.yaml"
    file.write_text(tiny_study_text)
    study = load_study(file, settings=["training.checkpoint_every=1000000", "training.steps=2000000"])
    with pytest.raises(
        InputError, match=r"expected at least one checkpoint interval, got 60 s .* in its earlier attempts"
    ):
        require_checkpoint_in_time(study, Slurm(time_limit="2"), finished)
    with pytest.raises(InputError, match=r"1000000 steps at the speed measured on this machine"):
        require_checkpoint_in_time(study, Slurm(time_limit="2"), finished / "nowhere")
    require_checkpoint_in_time(study, Slurm(time_limit="2", gpus=1), finished / "nowhere")  # their speed is not known
    require_checkpoint_in_time(study, Slurm(), finished)
    require_checkpoint_in_time(load_study(file), Slurm(time_limit="2"), finished)
