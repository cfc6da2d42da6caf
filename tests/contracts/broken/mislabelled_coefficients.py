r"""Coefficients of other layers than there are numbers.

    x + a_l f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "is_viewed_and_traced"


@dataclass(frozen=True, kw_only=True)
class MislabelledCoefficients(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "MislabelledCoefficientsResidual":
        return MislabelledCoefficientsResidual()


class MislabelledCoefficientsResidual(Residual):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.a[site.index % 2] * y

    def coefficients(self) -> dict[str, tuple[list[int], Tensor]]:
        return {"a": ([0, 1, 2], self.a.detach())}
