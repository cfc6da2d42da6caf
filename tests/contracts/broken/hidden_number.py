r"""A number drawn from the seed is kept outside the state dict.

    x + a f(x), a outside the state dict

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "survives_its_state_dict"


@dataclass(frozen=True, kw_only=True)
class HiddenNumber(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "HiddenNumberResidual":
        return HiddenNumberResidual(shape)


class HiddenNumberResidual(Residual):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(1))
        self.factor = 1.0

    def initialise(self, name: str, generator: torch.Generator) -> None:
        self.factor = float(torch.rand(1, generator=generator))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.factor * self.a * y
