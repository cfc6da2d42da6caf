r"""Stream weight: every entry of the stream is multiplied by a learned number before a branch joins.

    x <- rho_l * x + f_l(x)        rho_l = 1 at initialisation

Why: each entry may forget at a rate of its own, and branches keep their size. If all entries of a rho are one number, a norm
that reads the stream takes it out, as it does the lambdas of `lambdas`.

Source: Shi et al. 2024, "Wonderful Matrices" (Doge), arXiv:2412.11834; `DogeDecoderLayer.input_residual` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/doge/modeling_doge.py.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class StreamWeight(ResidualSpec):
    """A learned weight per branch and entry of the stream."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"residual": "add"}),
            Reduction(parameters={"weight": 0.0}, to={"residual": "none"}),
        )

    def build(self, shape: Shape, parts: Parts) -> "StreamWeightResidual":
        return StreamWeightResidual(shape.width, len(parts.sites))


class StreamWeightResidual(Residual):
    parameter_roles = {"weight": "vector"}

    def __init__(self, width: int, sites: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(sites, width))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return self.weight[site.index] * state + y
