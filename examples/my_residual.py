r"""Fading residual: the stream is multiplied by a learned factor at every branch, so that old contributions fade.

    x_{l+1} = gamma_l x_l + f_l(x_l),        gamma_l = 1 at initialisation

Why: an example. In a stream that only grows, late branches are relatively small; here the model can learn to forget.
Copy this file, change `write`, and name it in a study under `plugins`.

Source: none.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Fading(ResidualSpec):
    """One learned damping factor per branch."""

    gamma_init: float = 1.0
    """Value of every factor at the start; 1 is the plain residual."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"residual": "add"}),)

    def build(self, shape: Shape, parts: Parts) -> "FadingResidual":
        return FadingResidual(len(parts.sites), self.gamma_init)


class FadingResidual(Residual):
    def __init__(self, sites: int, gamma_init: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((sites,), gamma_init))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return self.gamma[site.index] * state + y
