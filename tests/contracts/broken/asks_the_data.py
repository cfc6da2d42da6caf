r"""Which way to join depends on the numbers, which no tracer can follow.

    x + f(x) if mean f(x) > 0 else x + 2 f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "exports"


@dataclass(frozen=True, kw_only=True)
class AsksTheData(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "AsksTheDataResidual":
        return AsksTheDataResidual()


class AsksTheDataResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y if y.mean() > 0 else state + 2 * y
