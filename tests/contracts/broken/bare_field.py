r"""A field without a docstring.

    x + a f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "fields_are_documented"


@dataclass(frozen=True, kw_only=True)
class BareField(ResidualSpec):
    """A broken residual."""

    alpha: float = 1.0

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"residual": "add"}),)

    def build(self, shape: Shape, parts: Parts) -> "BareFieldResidual":
        return BareFieldResidual()


class BareFieldResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
