r"""A file that does not say where it comes from.

    x + f(x)

Why: to be rejected.

Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "docstring_is_complete"


@dataclass(frozen=True, kw_only=True)
class NoSource(ResidualSpec):
    """A broken residual."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"residual": "add"}),)

    def build(self, shape: Shape, parts: Parts) -> "NoSourceResidual":
        return NoSourceResidual()


class NoSourceResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
