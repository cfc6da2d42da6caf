r"""Its weights start from torch's global generator.

    x + a f(x), a ~ N(1, 1)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "starts_the_same"


@dataclass(frozen=True, kw_only=True)
class GlobalGenerator(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "GlobalGeneratorResidual":
        return GlobalGeneratorResidual(shape)


class GlobalGeneratorResidual(Residual):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(1 + torch.randn(2 * shape.depth))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.a[site.index] * y
