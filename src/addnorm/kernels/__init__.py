"""Attention over summed scores, and sums over depth, each in a plain and in fast forms."""

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


@contextlib.contextmanager
def without_autocast(tensor: Tensor) -> Iterator[None]:
    """Switch autocast off on the tensor's device: it would round the float32 sums of narrow inputs."""
    kind = tensor.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            yield
    else:
        yield


@functools.cache
def has_compiler() -> bool:
    """True where Triton finds the C compiler that it needs to start a kernel."""
    # As Triton looks for one (triton/runtime/build.py).
    return bool(os.environ.get("CC")) or any(map(shutil.which, ("clang", "gcc")))


WITHOUT_FLOAT64 = {"mps"}
"""Types of devices that have no numbers of 64 bits."""


def precise(device: torch.device) -> torch.device:
    """The device on which to compute in float64 what another is to have: that one, or the CPU if it has no float64."""
    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


def wide(x: Tensor) -> Tensor:
    """Return the numbers in float32 at least, where logits and matrices that are normalised are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def reciprocal_rms(x: Float[Tensor, "*positions width"], eps: float) -> Float[Tensor, " *positions"]:
    """Return 1 / sqrt(mean square + eps) of every vector, in float32 at least."""
    return torch.rsqrt(wide(x).square().mean(dim=-1) + eps)


def constant(
    numbers: Sequence[float | int] | Sequence[Sequence[float | int]], device: torch.device, dtype: torch.dtype
) -> Tensor:
    """A tensor of given numbers on a device, without waiting for it.

    `torch.tensor(numbers, device=device)` copies from memory that the system may move, for which the host waits until the
    device has done everything that it was given before.
    """
    made = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda" and not torch.compiler.is_compiling():
        made = made.pin_memory()
    return made.to(device, non_blocking=True)
