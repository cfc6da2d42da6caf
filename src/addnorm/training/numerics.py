"""Choices that decide how a device computes: threads, TF32, deterministic algorithms. They hold for the whole process."""

import os
from typing import Any

import torch

from addnorm.errors import InputError
from addnorm.study.definition import Training

_TF32_SINCE = (8, 0)
"""Compute capability of the first GPUs with TF32."""


def device_here() -> torch.device:
    """The device of this process where none is named: the first GPU, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def require_precision(training: Training, device: torch.device) -> None:
    """Refuse a precision that a device does not have.

    Raises:
        InputError: TF32 on a device without it.
    """
    if training.precision == "tf32" and not (
        device.type == "cuda" and torch.cuda.get_device_capability(device) >= _TF32_SINCE
    ):
        raise InputError(
            f"training.precision: tf32: expected a GPU of compute capability 8.0 or later, got {device.type}. Use float32."
        )


def set_numerics(training: Training, device: torch.device) -> dict[str, Any]:
    """Set what a training asks for.

    Args:
        training: the training.
        device: the device to train on.

    Returns:
        The choices, for the run's record of its environment.

    Raises:
        InputError: TF32 on a device that does not have it.
    """
    torch.set_num_threads(training.threads)
    require_precision(training, device)
    torch.backends.cuda.matmul.fp32_precision = "tf32" if training.precision == "tf32" else "ieee"
    if training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first used
    if torch.are_deterministic_algorithms_enabled() != training.deterministic:  # the call imports torch's compiler
        torch.use_deterministic_algorithms(training.deterministic)
    return {"precision": training.precision, "deterministic": training.deterministic}
