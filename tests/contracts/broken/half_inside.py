r"""Every branch is computed in half precision.

    x + float16(f(x))

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "keeps_shape_and_dtype"


@dataclass(frozen=True, kw_only=True)
class HalfInside(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "HalfInsideResidual":
        return HalfInsideResidual()


class HalfInsideResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y.half().to(state.dtype)
