"""`--until decided`: stages are trained one after the other, and a study that is killed anywhere ends as one that is not."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from addnorm.cli import main
from addnorm.store import StudyFolder
from addnorm.store.results import ranking
from addnorm.study.loading import load_study
from addnorm.supervision import stages
from addnorm.supervision.run import run
from train_here import workers_here

STUDY = """
name: stages
references: [base]
seeds: [0, 1, 2]
# No difference is equivalent within this, so that the comparison of two nearly equal variants stays open.
margin: 1.0e-9
corpus: {kind: synthetic, num_documents: 20}
tokenizer: bytes
training:
  {steps: 6, batch: 2, seq: 16, eval_sequences: 4, optimizer: {kind: adamw, learning_rate: 2e-2}, schedule: {kind: constant}}
model: {preset: base, width: 16, depth: 1, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {}
  near: {dropout: 0.05}
  still: {training: {optimizer: {learning_rate: 1e-7}}}
"""


@pytest.fixture(autouse=True, scope="module")
def nothing_is_hopeless() -> Iterator[None]:
    """Keep the comparison open whatever the losses of a few steps are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("addnorm.statistics.seeds_in_stages.HOPELESS", 0.0)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "stages.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def calm(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study that nothing disturbed. Read it only."""
    return train(file, tmp_path_factory.mktemp("calm") / "out").path


def train(file: Path, out: Path, most: int = 6) -> StudyFolder:
    with workers_here():
        return run(load_study(str(file)), out=out, until="decided", most=most)


def content(out: Path) -> dict[str, Any]:
    """The plan with its stages, and the weights of every run, without times."""
    plan = json.loads((out / "study.json").read_text())
    for extension in plan.get("extensions", []):
        del extension["time"]
    return {**plan, "weights": {run.name: (run.ending() or {}).get("content_hash") for run in StudyFolder(out).runs()}}


def first_stage(calm: Path, out: Path) -> Path:
    """The study after its first stage."""
    shutil.copytree(calm, out)
    plan = json.loads((out / "study.json").read_text())
    for extension in plan.pop("extensions"):
        for entry in extension["runs"]:
            shutil.rmtree(out / entry["run"])
    (out / "study.json").write_text(json.dumps(plan))
    return out


def test_stages_train_the_open_comparisons_alone(file: Path, calm: Path) -> None:
    folder = StudyFolder(calm)
    assert folder.plan["design"]["looks"] == [3, 4, 6]
    assert folder.plan["seeds"] == [0, 1, 2]
    assert [(e["stage"], e["seeds"]) for e in folder.extensions] == [(1, [3]), (2, [4, 5])]
    assert {run["variant"] for e in folder.extensions for run in e["runs"]} == {"base", "near"}
    found = ranking(folder)
    assert found["still"].versus["base"].verdict == "worse"
    assert found["still"].seeds == 3
    assert found["near"].versus["base"].seeds == 6
    assert not found.provisional
    assert all(value.planned and not value.after_look for row in found.variants for value in row.values)
    before = (calm / "study.json").read_bytes()
    assert len(train(file, calm).runs()) == len(folder.runs()) == 15
    assert (calm / "study.json").read_bytes() == before


@pytest.mark.parametrize("options", [[], ["--until", "decided", "--most", "7"], ["--set", "seeds=[0,1,2,3]"]])
def test_another_design_is_refused_and_nothing_lost(
    options: list[str], file: Path, calm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = (calm / "study.json").read_bytes()
    with workers_here():
        assert main(["run", str(file), "--out", str(calm), *options]) == 2
    assert "expected the plan that study 'stages' was started with, got another one (design" in capsys.readouterr().err
    assert (calm / "study.json").read_bytes() == plan


@pytest.mark.parametrize(
    "moment", ["before the stage is written", "before its folders are made", "while it is trained"]
)
def test_a_killed_study_ends_like_any_other(
    moment: str, file: Path, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    out = first_stage(calm, tmp_path / "out")
    with monkeypatch.context() as patched:
        if moment == "before the stage is written":
            patched.setattr("addnorm.store.study.with_stage", killed)
        elif moment == "while it is trained":
            patched.setattr("addnorm.training.loop.Trainer.train_step", killed)
        else:
            make = StudyFolder._make_run_folders
            patched.setattr(StudyFolder, "_make_run_folders", lambda of: killed() if of.extensions else make(of))
        with pytest.raises(KeyboardInterrupt):
            train(file, out)
    assert len(StudyFolder(out).extensions) == (moment != "before the stage is written")
    train(file, out)
    assert content(out) == content(calm)


def test_a_stop_between_stages_is_obeyed(calm: Path, tmp_path: Path) -> None:
    """The signal arrives when every run of a stage has ended, within the supervisor's own handling of signals."""
    out = first_stage(calm, tmp_path / "out")

    def stopped(folder: StudyFolder) -> None:
        with stages.StopSignals() as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            inner.wait(10.0)
            assert inner.count == 1

    assert stages.train_in_stages(StudyFolder(out), stopped).extensions == []


def test_one_message_for_a_wrong_number(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_it = ["run", str(file), "--out", str(tmp_path / "out")]
    assert main([*run_it, "--until", "decided", "--most", "2"]) == 2
    assert "most: expected at least the 3 seeds of the first stage, got 2." in capsys.readouterr().err
    assert main([*run_it, "--most", "9"]) == 2
    assert "--most: expected with --until decided, got it alone." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
