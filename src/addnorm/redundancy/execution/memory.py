"""What an audit of a model will take of memory, before anything is built, and what there is.

An audit holds, at its peak, the model, one copy in float64 with generic weights, and the null space as maps between
parameters, which for a Transformer are about five bytes for every one of its numbers; a rewrite also holds the rewritten model
and the null space at the model's own weights. That is what is counted; what runs through the model with a few short inputs is
small beside it.
"""

from pathlib import Path

from torch import nn

from addnorm.errors import InputError

_FLOAT64 = 8
_MAPS = 2 * 5
"""Bytes of two null spaces for each number of the model."""


def needed_bytes(parameters: int, itemsize: int = 4) -> int:
    """What an audit and a rewrite take at their peak.

    Args:
        parameters: how many numbers the model has.
        itemsize: bytes of each.
    """
    return parameters * (2 * itemsize + _FLOAT64 + _MAPS)


def budget_bytes(given_gb: float | None) -> int:
    """What may be taken: as given, or half of what the machine has left.

    Raises:
        InputError: not a positive number, or the machine does not say what it has left.
    """
    if given_gb is not None:
        if not given_gb > 0:
            raise InputError(f"--memory is a number of GB above zero, got {given_gb:g}.")
        return int(given_gb * 1e9)
    left = left_bytes()
    if left is None:
        raise InputError("this system does not say how much memory is left. Give --memory, in GB.")
    return left // 2


def left_bytes() -> int | None:
    """What the machine has left; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def model_bytes(model: nn.Module) -> int:
    """What an audit and a rewrite of a model take at their peak."""
    numbers = list(model.parameters())
    return needed_bytes(sum(each.numel() for each in numbers), _widest(numbers))


def carried_bytes(parameters: int, itemsize: int = 4) -> int:
    """What a rewrite takes that is carried over from a smaller model: the model, and room for its largest
    weights in float64."""
    return 2 * parameters * itemsize


def _widest(numbers: list[nn.Parameter]) -> int:
    return max((each.element_size() for each in numbers), default=4)


def gb(size: int) -> str:
    """A size in words."""
    return f"{size / 1e9:.3g} GB"
