r"""Clip: a vector that is longer than a threshold is shortened to it; a shorter one stays as it is.

    y = x * min(1, norm.threshold / (||x|| + norm.eps))

Why: as `qk_norm`, it bounds every score by threshold^2 / sqrt(d_k), yet leaves a head free to score less; a norm would give all
queries and keys one length.

Source: Inkling 2, `Inkling2L2Clip` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: no learned scale before the clip of queries, which the query matrix holds.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.fields import require, require_positive
from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Clip(NormSpec):
    """A bound of every vector's length."""

    threshold: float = 8.0
    """Largest length."""
    eps: float = 1e-6
    """Added to the length that the threshold is divided by."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "threshold")
        require(self, "eps", 0 <= self.eps < math.inf, "a number of at least 0")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"threshold": 1e300}, to={"norm": "none"}),)

    def build(self, dim: int, *, shift: bool) -> "LengthClip":
        return LengthClip(self.threshold, self.eps)


class LengthClip(nn.Module):
    def __init__(self, threshold: float, eps: float) -> None:
        super().__init__()
        self.threshold, self.eps = threshold, eps

    def forward(self, x: Float[Tensor, "*positions dim"]) -> Float[Tensor, "*positions dim"]:
        exact = x.to(torch.promote_types(x.dtype, torch.float32))  # squares of float16 overflow at lengths of 256
        length = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        return x * (self.threshold / (length + self.eps)).clamp(max=1.0).to(x.dtype)
