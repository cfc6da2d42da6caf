r"""T5's relative bias: a learned number per head for every bucket of distances, the same in all layers.

    score_{m,n} <- score_{m,n} + table[bucket(m - n), h]

With B buckets for one side and E = B/2: bucket(d) = d for d < E, then E + floor(log(d/E) / log(farthest/E) · (B - E)), at most
B - 1. `sides` "past" gives keys after the query the bucket of distance zero, as in T5's decoder; "both" gives each side half
of the buckets, as in its encoder.

Why: short distances are distinguished one by one, longer ones by their order of magnitude, the longest not at all.

Source: Raffel et al. 2019, arXiv:1910.10683 §2.1; the buckets from its code, https://github.com/google-research/text-to-text-transfer-transformer.
Differs from the source: scores stay divided by sqrt(d_k), which T5 leaves to the weights' start.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.kernels import constant
from addnorm.position import DistancePosition, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape

Sides = Literal["past", "both"]


@dataclass(frozen=True, kw_only=True)
class T5(PositionSpec):
    """A table of buckets × heads."""

    buckets: int = 32
    """Buckets in all; a multiple of 2, of 4 with sides "both"."""
    farthest: int = 128
    """Distance from which all share the last bucket."""
    sides: Sides = "past"
    """"both" gives distances to later keys buckets of their own, which only masked models use."""

    def __post_init__(self) -> None:
        super().__post_init__()
        step = 2 if self.sides == "past" else 4
        if self.buckets < step or self.buckets % step:
            raise InputError(
                f"t5.buckets: expected a positive multiple of {step} with sides {self.sides!r}, got {self.buckets}."
            )
        alone = self.buckets // step
        if self.farthest <= alone:
            raise InputError(
                f"t5.farthest: expected more than {alone}, because the first {alone} distances have a bucket each, "
                f"got {self.farthest}."
            )

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return tuple(Reduction(parameters={"table": number}, to={"position": "none"}) for number in (0.0, 3.0))

    def build(self, shape: Shape) -> "T5Position":
        return T5Position(shape, self)


class T5Position(DistancePosition):
    parameter_roles = {"table": "table"}

    def __init__(self, shape: Shape, spec: T5) -> None:
        super().__init__()
        self.sides = spec.sides
        self.edges = first_distances(spec.buckets if spec.sides == "past" else spec.buckets // 2, spec.farthest)
        self.init_std = shape.width**-0.5
        self.table = nn.Parameter(torch.empty(spec.buckets, shape.heads))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=generator)

    def measure(self, distance: Int64[Tensor, " span"]) -> Int64[Tensor, " span"]:
        edges = constant(self.edges, distance.device, torch.int64)
        if self.sides == "past":
            return torch.bucketize(distance, edges, right=True)
        return torch.bucketize(distance.abs(), edges, right=True) + (len(edges) + 1) * (distance < 0)

    def bias(self, layer: int, measured: Int64[Tensor, " span"]) -> Float[Tensor, "heads span"]:
        return self.table[measured].T


def first_distances(buckets: int, farthest: int) -> list[int]:
    """The first distance of every bucket of one side but the first: those where the formula's floor steps.

    In whole numbers, log(d/E) / log(F/E) · n >= k being d^n >= F^k E^(n-k): in T5's own float32 such a distance is decided by
    rounding.
    """
    exact, wide = buckets // 2, buckets - buckets // 2
    edges = list(range(1, exact + 1))
    for k in range(1, wide):
        edge = edges[-1]
        while edge**wide < farthest**k * exact ** (wide - k):
            edge += 1
        edges.append(edge)
    return edges
