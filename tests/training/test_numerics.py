"""What a training asks of a device is set for the process, and recorded."""

from collections.abc import Iterator

import pytest
import torch

from addnorm.errors import InputError
from addnorm.study.definition import Training
from addnorm.training.numerics import set_numerics

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


def test_deterministic_algorithms_are_those_of_the_training() -> None:
    assert set_numerics(Training(deterministic=True), CPU)["deterministic"]
    assert torch.are_deterministic_algorithms_enabled()
    set_numerics(Training(), CPU)
    assert not torch.are_deterministic_algorithms_enabled()
