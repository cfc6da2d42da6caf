"""Runs of ours as targets."""

import shutil
from pathlib import Path

import pytest
import torch

import addnorm
from addnorm.errors import InputError
from addnorm.outside.targets import resolve
from addnorm.store import RunFolder, StudyFolder
from addnorm.training.export import export_run


def test_a_finished_run_and_its_export_are_the_same_model(finished: Path, tmp_path: Path):
    run = StudyFolder(finished).runs()[0]
    target = resolve(run.path)
    exported = export_run(RunFolder(run.path), tmp_path / "exported")
    other = resolve(exported)
    assert target.kind == other.kind == "run"
    assert torch.equal(target.inputs, other.inputs)
    assert not target.model.training
    expected = addnorm.load(exported).state_dict()
    for found in (target, other):
        state = found.model.state_dict()
        assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert torch.isfinite(target.model(target.inputs)).all()


def test_a_study_names_its_runs(finished: Path):
    with pytest.raises(InputError, match="It holds runs; give one of them, such as"):
        resolve(finished)


def test_an_unfinished_run_is_refused(finished: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(StudyFolder(finished).runs()[0].path, folder)
    for name in ("final.safetensors", "DONE"):
        (folder / name).unlink()
    with pytest.raises(InputError, match="expected a finished run"):
        resolve(folder)
