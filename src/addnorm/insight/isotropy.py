"""Norm of the mean direction of vectors: 0 if they are isotropic, 1 if all have one direction."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor


def mean_direction(vectors: Float[Tensor, "sample heads seq head_dim"]) -> Float64[Tensor, " heads"]:
    """Compute the norm of the mean direction, per head; vectors of zero length count as zero."""
    vectors = vectors.double()
    lengths = vectors.norm(dim=-1, keepdim=True)
    return torch.where(lengths > 0, vectors / lengths.clamp(min=1e-300), 0.0).mean(dim=(0, 2)).norm(dim=-1)
