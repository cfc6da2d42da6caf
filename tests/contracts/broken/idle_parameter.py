r"""It owns a parameter that nothing reads.

    x + f(x)

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
class IdleParameter(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "IdleParameterResidual":
        return IdleParameterResidual(shape)


class IdleParameterResidual(Residual):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.idle = torch.nn.Parameter(torch.zeros(shape.depth))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
