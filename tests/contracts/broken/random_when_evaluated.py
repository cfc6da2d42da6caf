r"""A factor that is drawn anew in every pass.

    x + u f(x), u uniform in [0, 1]

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "repeats_itself"


@dataclass(frozen=True, kw_only=True)
class RandomWhenEvaluated(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "RandomWhenEvaluatedResidual":
        return RandomWhenEvaluatedResidual()


class RandomWhenEvaluatedResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + torch.rand((), dtype=y.dtype, device=y.device) * y
