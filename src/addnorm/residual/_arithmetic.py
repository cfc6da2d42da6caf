"""Sums over depth in the stream's own precision, whatever autocast asks of matrix products."""

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.precision import without_autocast

Vectors = Float[Tensor, "sources batch seq width"]


def wide(x: Tensor) -> Tensor:
    """Return the numbers in float32 at least, where logits and matrices that are normalised are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def reciprocal_rms(x: Float[Tensor, "*positions width"], eps: float) -> Float[Tensor, " *positions"]:
    """Return 1 / sqrt(mean square + eps) of every vector, in float32 at least."""
    return torch.rsqrt(wide(x).square().mean(dim=-1) + eps)


def weighted_sum(weights: Float[Tensor, "sources *positions"], vectors: Vectors) -> Float[Tensor, "batch seq width"]:
    """Add up the sources, each times one number, or one number per position."""
    with without_autocast(vectors):
        pattern = "n,nbsd->bsd" if weights.ndim == 1 else "nbs,nbsd->bsd"
        return torch.einsum(pattern, weights.to(vectors.dtype), vectors)
