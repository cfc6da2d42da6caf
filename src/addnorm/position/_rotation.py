"""Rotation of neighbouring pairs of entries, for rotary encodings and those derived from them."""

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels import precise


def frequencies(dim: int, theta: float, device: torch.device) -> Float[Tensor, " pairs"]:
    """theta^{-2j/dim} for j < dim/2, in float64: at position 100 000 float32 leaves an error of 0.004 in the fastest pair.

    They are on the device, or on the CPU if it has no float64.
    """
    return theta ** (-torch.arange(0, dim, 2, device=precise(device), dtype=torch.float64) / dim)


def turn(
    x: Float[Tensor, "*batch seq entries"], cos: Float[Tensor, "seq pairs"], sin: Float[Tensor, "seq pairs"]
) -> Float[Tensor, "*batch seq entries"]:
    """Rotate each pair (x_{2j}, x_{2j+1}) as a point of the plane (and scale it, if cos and sin are scaled)."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return turned.to(x.dtype)  # under autocast the angles have a wider type than the queries
