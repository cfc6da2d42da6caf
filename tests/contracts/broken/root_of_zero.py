r"""The branch weight is the root of a learned number that starts at zero.

    x + sqrt(a) f(x), a = 0

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "has_finite_gradients"


@dataclass(frozen=True, kw_only=True)
class RootOfZero(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "RootOfZeroResidual":
        return RootOfZeroResidual(shape)


class RootOfZeroResidual(Residual):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(2 * shape.depth))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.a[site.index].abs().sqrt() * y
