r"""Relative bank: every query mixes learned profiles over the distance, and the mixture is added to its scores.

    score_{m,n} += r_{m,h} . T[:, m - n]        r_{m,h} = W_h x_m;  T: position.rank x position.extent, zero at initialisation
    nothing is added where m - n < 0 or m - n >= position.extent

W and T belong to a layer; all its heads share T.

Why: what a distance is worth depends on the token that looks back. Constant r is one learned number per distance, and W = 0 or
T = 0 no position at all.

Source: Inkling 2, `Inkling2RelativeLogits` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: no clip of r; T starts at zero. The bias depends on the input, so that it takes memory of
heads x query x key, as in the source; scores jump by r . T[:, extent - 1] at the last distance.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.fields import require_at_least
from addnorm.kernels import without_autocast
from addnorm.position import Position, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class RelativeBank(PositionSpec):
    """Learned profiles over the distance, mixed by every query."""

    rank: int = 16
    """Number of profiles per layer."""
    extent: int = 512
    """Number of distances, from 0, that profiles cover."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "rank", "extent")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(parameters={"reads": 0.0}, to={"position": "none"}),
            Reduction(parameters={"profiles": 0.0}, to={"position": "none"}),
        )

    def build(self, shape: Shape) -> "RelativeBankPosition":
        return RelativeBankPosition(shape, self)


class Distances(NamedTuple):
    entry: Int64[Tensor, "query key"]
    """The profile's entry for every pair; any entry where nothing is added."""
    outside: Tensor
    """True where nothing is added."""


class RelativeBankPosition(Position):
    parameter_roles = {"reads": "hidden_matrix", "profiles": "table"}

    def __init__(self, shape: Shape, spec: RelativeBank) -> None:
        super().__init__()
        self.heads, self.extent = shape.heads, spec.extent
        self.reads = nn.Parameter(torch.empty(shape.depth, shape.heads * spec.rank, shape.width))
        self.profiles = nn.Parameter(torch.zeros(shape.depth, spec.rank, spec.extent))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "reads":
            nn.init.normal_(self.reads, std=self.reads.shape[-1] ** -0.5, generator=generator)

    def prepare(self, start: int, seq: int, like: Tensor) -> Distances:
        # Once for all layers. Keys begin at 0 whatever was cached, so that row r stands at start + r.
        query, key = (torch.arange(first, start + seq, device=like.device) for first in (start, 0))
        distance = query[:, None] - key
        return Distances(distance.clamp(0, self.extent - 1), (distance < 0) | (distance >= self.extent))

    def layer_bias(
        self, layer: int, x: Float[Tensor, "batch seq width"], prepared: Distances
    ) -> Float[Tensor, "batch heads query key"]:
        with without_autocast(x):
            mixtures = F.linear(x, self.reads[layer].to(x.dtype)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            by_distance = mixtures @ self.profiles[layer].to(x.dtype)  # [batch, heads, query, extent]
        # A gather, not one product per pair: profiles are mixed for each of `extent` distances once, then looked up.
        index = prepared.entry.expand(*by_distance.shape[:2], -1, -1)
        return by_distance.gather(-1, index).masked_fill(prepared.outside, 0.0)
