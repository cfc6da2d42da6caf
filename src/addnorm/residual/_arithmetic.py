"""Numbers per position that weights across depth are made of."""

import torch
from jaxtyping import Float
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Return the numbers in float32 at least, where logits and matrices that are normalised are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def reciprocal_rms(x: Float[Tensor, "*positions width"], eps: float) -> Float[Tensor, " *positions"]:
    """Return 1 / sqrt(mean square + eps) of every vector, in float32 at least."""
    return torch.rsqrt(wide(x).square().mean(dim=-1) + eps)
