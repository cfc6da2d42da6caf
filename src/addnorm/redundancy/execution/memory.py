"""Estimate of the memory that an audit needs, and the memory that is available.

At its peak an audit holds the model, one copy in float64 with generic weights, and the null space as maps between parameters,
which take about five bytes per parameter of a Transformer. A rewrite also holds the rewritten model and the null space at the
model's own weights. Activations are not counted here: they exist before the rewrite, and are larger only at many tokens
(`cost.py`).
"""

from pathlib import Path

from torch import nn

from addnorm.errors import InputError

_FLOAT64 = 8
_MAPS = 5
"""Bytes of a null space per parameter."""


def needed_bytes(parameters: int, itemsize: int = 4) -> int:
    """Estimate the peak memory of an audit and a rewrite.

    Args:
        parameters: number of the model's parameters.
        itemsize: bytes of each.
    """
    return parameters * (2 * itemsize + _FLOAT64 + 2 * _MAPS)


def budget_bytes(given_gb: float | None) -> int:
    """Return the memory that may be used: as given, or half of the available memory.

    Raises:
        InputError: not a positive number, or the system does not report its available memory.
    """
    if given_gb is not None:
        if not given_gb > 0:
            raise InputError(f"expected --memory to be a number of GB above zero, got {given_gb:g}.")
        return int(given_gb * 1e9)
    left = left_bytes()
    if left is None:
        raise InputError("expected a system that reports its available memory, got none. Give --memory, in GB.")
    return left // 2


def left_bytes() -> int | None:
    """Return the available memory; None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def model_bytes(model: nn.Module) -> int:
    """Estimate the peak memory of an audit and a rewrite of a model."""
    numbers = list(model.parameters())
    return needed_bytes(sum(each.numel() for each in numbers), _widest(numbers))


def rewrite_bytes(model: nn.Module) -> int:
    """Estimate the part of `model_bytes` that only a rewrite needs."""
    numbers = list(model.parameters())
    return sum(each.numel() for each in numbers) * (_widest(numbers) + _MAPS)


def transfer_bytes(parameters: int) -> int:
    """Estimate the memory of a rewrite that is transferred from a smaller model: the model, and its largest weights in
    float64."""
    return 2 * parameters * 4


def _widest(numbers: list[nn.Parameter]) -> int:
    return max((each.element_size() for each in numbers), default=4)


def gb(size: int) -> str:
    """Format a size in GB."""
    return f"{size / 1e9:.3g} GB"
