"""What a training asks of a device is set for the process, and recorded."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import addnorm
from addnorm.errors import InputError
from addnorm.study.definition import Training
from addnorm.study.loading import load_study
from addnorm.training.numerics import set_numerics
from train_here import train_here

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    threads = torch.get_num_threads()
    yield
    set_numerics(Training(threads=threads), CPU)


def test_tf32_is_on_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert set_numerics(Training(precision="tf32"), GPU) == {"precision": "tf32", "deterministic": False}
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    set_numerics(Training(), GPU)
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


def test_tf32_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    for device in (CPU, GPU):
        with pytest.raises(InputError, match="expected a GPU of compute capability"):
            set_numerics(Training(precision="tf32"), device)


def test_a_study_that_no_local_worker_could_train_is_refused_before_its_folder_is_made(
    tmp_path: Path, tiny_study_text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "s.yaml").write_text(tiny_study_text)
    study = load_study(tmp_path / "s.yaml", settings=["training.precision=tf32"])
    with pytest.raises(InputError, match=r"training\.precision: tf32: expected a GPU"):
        addnorm.run(study, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_deterministic_algorithms_are_those_of_the_training() -> None:
    assert set_numerics(Training(deterministic=True), CPU)["deterministic"]
    assert torch.are_deterministic_algorithms_enabled()
    set_numerics(Training(), CPU)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_run_records_how_it_computed(tmp_path: Path, tiny_study_text: str) -> None:
    (tmp_path / "s.yaml").write_text(tiny_study_text)
    study = load_study(tmp_path / "s.yaml", settings=["seeds=[0]", "training.precision=bfloat16"])
    base = replace(study, variants={"base": study.variants["base"]})
    (run,) = train_here(base, tmp_path / "out").runs()
    assert run.env is not None
    chosen = {name: run.env[name] for name in ("precision", "deterministic", "compile", "threads", "ranks", "parallel")}
    assert chosen == {
        "precision": "bfloat16",
        "deterministic": False,
        "compile": "no",
        "threads": 1,
        "ranks": 1,
        "parallel": "replicated",
    }
