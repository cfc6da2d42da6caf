r"""It does not say what it equals.

    x + f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "reduces_as_declared"


@dataclass(frozen=True, kw_only=True)
class SaysNothing(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "SaysNothingResidual":
        return SaysNothingResidual()


class SaysNothingResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
