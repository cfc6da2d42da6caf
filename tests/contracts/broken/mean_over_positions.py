r"""Every position takes a share of the branch's mean over all positions, later ones too.

    x + f(x) + mean_t f(x)_t

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "is_causal"


@dataclass(frozen=True, kw_only=True)
class MeanOverPositions(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "MeanOverPositionsResidual":
        return MeanOverPositionsResidual()


class MeanOverPositionsResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y + 0.1 * y.mean(dim=1, keepdim=True)
