"""Attention over summed scores, and sums over depth, each in a plain and in fast forms."""

import contextlib
from collections.abc import Iterator

import torch
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
