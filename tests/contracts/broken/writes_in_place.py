r"""The branch's output is added into the tensor that holds the stream.

    x += f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "leaves_inputs_alone"


@dataclass(frozen=True, kw_only=True)
class WritesInPlace(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "WritesInPlaceResidual":
        return WritesInPlaceResidual()


class WritesInPlaceResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state.add_(y)
