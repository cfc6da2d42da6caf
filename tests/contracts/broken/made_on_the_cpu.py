r"""A turn of the branch by a matrix that lies on the CPU.

    x + f(x) R

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "runs_on_its_device"


@dataclass(frozen=True, kw_only=True)
class MadeOnTheCPU(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "MadeOnTheCPUResidual":
        return MadeOnTheCPUResidual()


class MadeOnTheCPUResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y @ torch.eye(y.shape[-1], dtype=y.dtype).flip(0)
