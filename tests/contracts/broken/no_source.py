r"""A file that does not say where it comes from.

    x + f(x)

Why: to be rejected.

Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "docstring_is_complete"


@dataclass(frozen=True, kw_only=True)
class NoSource(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape) -> "NoSourceResidual":
        return NoSourceResidual()


class NoSourceResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
