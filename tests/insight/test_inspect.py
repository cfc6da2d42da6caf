"""`addnorm inspect`: what is written into a run's folder, when it is measured again, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from addnorm.cli import main
from addnorm.insight.flow import INSIGHT, Settings, inspect_run, runs
from addnorm.store import RunFolder, StudyFolder
from addnorm.training.checkpoint import save_step
from addnorm.training.run_weights import newest_weights

FEW = Settings(sequences=4, map_sequences=2)


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    out = tmp_path / "runs"
    shutil.copytree(finished, out)
    return out


@pytest.fixture
def run(study: Path) -> RunFolder:
    return next(run for run in StudyFolder(study).runs() if run.spec["variant"] == "v4m5")


def test_the_file_says_what_was_measured(run: RunFolder) -> None:
    found = inspect_run(run, FEW)
    assert json.loads((run.path / INSIGHT).read_text()) == found
    assert found["weights"] == {"file": "final.safetensors", "step": 6, "steps": 6}
    assert found["data"]["sequences"] == 4
    assert found["data"]["hash"] == StudyFolder(run.path.parent).plan["data_hash"]
    assert len(found["start"]["layers"]) == len(found["end"]["layers"]) == 2
    assert "own_share" in found["end"]["layers"][1]


def test_the_end_is_the_final_weights_and_the_start_the_first(run: RunFolder) -> None:
    found = inspect_run(run, FEW)
    assert found["start"] != found["end"]
    # The run evaluates 4 held-out sequences, the very ones that are measured here.
    assert found["end"]["loss"] == pytest.approx(run.newest("eval")["loss"], rel=1e-6)
    first = json.loads(run.events_path.read_text().splitlines()[1])
    assert first["type"] == "train"
    assert found["start"]["loss"] == pytest.approx(first["losses"][0], rel=0.2)


def test_what_is_there_is_kept_until_something_changes(run: RunFolder, monkeypatch) -> None:
    found = inspect_run(run, FEW)
    monkeypatch.setattr(runs, "flow", lambda model, windows: {"measured": "again"})
    assert inspect_run(run, FEW) == found
    assert inspect_run(run, Settings(sequences=3, map_sequences=2))["end"] == {"measured": "again"}
    (run.path / INSIGHT).write_text("{torn", encoding="utf-8")
    assert inspect_run(run, FEW)["end"] == {"measured": "again"}


def test_a_run_that_has_not_finished_is_measured_at_its_newest_checkpoint(run: RunFolder) -> None:
    state = {"step": 4, "model": newest_weights(run).weights}
    for left in (run.final_path, run.path / "DONE"):
        left.unlink()
    shutil.rmtree(run.checkpoints_path)
    save_step(run.checkpoints_path, 4, state)
    found = inspect_run(run, FEW)
    assert found["weights"] == {"file": "checkpoints/step-00000004.pt", "step": 4, "steps": 6}
    shutil.rmtree(run.checkpoints_path)
    assert main(["inspect", str(run.path)]) == 2


def test_a_study_with_one_run_that_cannot_be_inspected(study: Path, capsys) -> None:
    broken, *others = StudyFolder(study).runs()
    broken.final_path.write_bytes(b"not weights")
    assert main(["inspect", str(study), "--json", "--sequences", "2", "--map-sequences", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in found["runs"]] == [run.name for run in others]
    assert "damaged" in found["skipped"][broken.name]
    assert not (broken.path / INSIGHT).exists()
    assert main(["inspect", str(study), "--sequences", "2", "--map-sequences", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"{broken.name} was left out" in shown
    assert others[0].name in shown


def test_a_runs_table_has_the_columns_that_its_model_has(run: RunFolder, capsys) -> None:
    assert main(["inspect", str(run.path), "--sequences", "2", "--map-sequences", "1"]) == 0
    columns = capsys.readouterr().out.partition("gradient: norm")[0].split()
    assert {"own", "scores", "cosine", "first", "exit"} <= {*columns}
    base = next(run for run in StudyFolder(run.path.parent).runs() if run.spec["variant"] == "base")
    assert main(["inspect", str(base.path), "--sequences", "2", "--map-sequences", "1"]) == 0
    columns = capsys.readouterr().out.partition("gradient: norm")[0].split()
    assert "exit" in columns
    assert "own" not in columns


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sequences", "0"], "sequences must be at least 1"),
        (["--map-sequences", "-1"], "map_sequences must be at least 1"),
    ],
)
def test_a_count_below_one(run: RunFolder, capsys, arguments, said) -> None:
    assert main(["inspect", str(run.path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_other_folders_and_other_data(run: RunFolder, tmp_path: Path, capsys) -> None:
    assert main(["inspect", str(tmp_path)]) == 2
    assert "expected the folder of a study or a run, got one without" in capsys.readouterr().err
    description = run.path.parent / "data" / "dataset.json"
    content = json.loads(description.read_text())
    description.write_text(json.dumps({**content, "hash": "f" * 64}), encoding="utf-8")
    assert main(["inspect", str(run.path)]) == 2
    assert "was trained on" in capsys.readouterr().err


def test_weights_that_do_not_fit(run: RunFolder) -> None:
    from safetensors.torch import save_file

    save_file({"head.weight": torch.zeros(2, 2)}, run.final_path)
    assert main(["inspect", str(run.path)]) == 1


def test_nothing_else_in_the_folder_changes(run: RunFolder) -> None:
    def listing() -> dict[str, bytes]:
        return {str(p.relative_to(run.path)): p.read_bytes() for p in run.path.rglob("*") if p.is_file()}

    before = listing()
    inspect_run(run, FEW)
    after = listing()
    assert after.pop(INSIGHT)
    assert after == before
