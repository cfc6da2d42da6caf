r"""Gated norm: an RMS norm, then a gate of low rank that reads what the norm returns.

    n = x / sqrt(mean(x^2) + eps) * gamma
    y = n * sigma(W_2 silu(W_1 n))        W_1: norm.rank x width; W_2 = 0 at initialisation

Why: a norm gives every position the same size; with the gate a position may be read weakly, entry by entry. With W_2 = 0 it is
the norm with half its gain. The gain no longer folds into the next matrix, because the gate reads it too.

Source: SK Telecom, A.X K2, `AXK2GatedRMSNorm` (rank 16) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/axk2/modeling_axk2.py; there after NVIDIA
Megatron's `GatedNormWrapper`.
Differs from the source: W_2 starts at zero, in the source both matrices start small. W_1 starts with variance 1 / width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.fields import require_at_least, require_positive
from addnorm.kernels import without_autocast
from addnorm.norm import NormSpec
from addnorm.reduction import Reduction
from addnorm.roles import ParameterRole


@dataclass(frozen=True, kw_only=True)
class Gated(NormSpec):
    """An RMS norm with a gate on its output."""

    rank: int = 16
    """Rank of the gate."""
    eps: float = 1e-5
    """Added to the mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "rank")
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        half = {"up": 0.0, "weight": 2.0}
        return (Reduction(parameters=half, to={"norm": "rms"}, theirs={"weight": 1.0}),)

    def build(self, dim: int, *, shift: bool) -> "GatedRMSNorm":
        return GatedRMSNorm(dim, self.rank, self.eps)


class GatedRMSNorm(nn.RMSNorm):
    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {
        "weight": "vector",
        "down": "hidden_matrix",
        "up": "hidden_matrix",
    }

    def __init__(self, dim: int, rank: int, eps: float) -> None:
        super().__init__(dim, eps=eps)
        self.down = nn.Parameter(torch.empty(rank, dim))
        self.up = nn.Parameter(torch.zeros(dim, rank))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "down":
            nn.init.normal_(self.down, std=self.down.shape[1] ** -0.5, generator=generator)

    def forward(self, x: Float[Tensor, "*positions dim"]) -> Float[Tensor, "*positions dim"]:
        with without_autocast(x):  # a branch's output has a narrower type than the gain
            normed = super().forward(x.to(self.weight.dtype))
            return normed * torch.sigmoid(F.linear(F.silu(F.linear(normed, self.down)), self.up))
