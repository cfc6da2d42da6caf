"""Failures of a device end a run once, with a sentence: the worker knows them from a crash that another attempt may survive."""

import pytest
import torch

from addnorm.training import worker


class OutOfResources(Exception):  # Triton's own shares no base class with torch's errors
    __module__ = "triton.runtime.errors"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OutOfResources("shared memory, Required: 122880"), "a kernel cannot run on this GPU; set attention"),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), "the GPU failed"),
        (torch.OutOfMemoryError("CUDA out of memory."), "out of memory"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory"),
    ],
)
def test_a_failure_of_the_device_is_named(error: Exception, sentence: str) -> None:
    assert str(worker._of_the_device(error)).startswith(sentence)


def test_any_other_error_is_a_crash() -> None:
    assert worker._of_the_device(RuntimeError("shapes do not match")) is None
    assert worker._of_the_device(KeyError("step")) is None
