r"""A running mean over the positions of this call, which a cache knows nothing of.

    x_t + mean_{s<=t} f(x)_s

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "decodes_with_a_cache"


@dataclass(frozen=True, kw_only=True)
class ForgetsThePast(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "ForgetsThePastResidual":
        return ForgetsThePastResidual()


class ForgetsThePastResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        seen = torch.arange(1, y.shape[1] + 1, dtype=y.dtype, device=y.device)[:, None]
        return state + y.cumsum(dim=1) / seen
