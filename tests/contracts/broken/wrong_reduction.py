r"""It says that it equals what it does not equal.

    x + f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "reduces_as_declared"


@dataclass(frozen=True, kw_only=True)
class WrongReduction(ResidualSpec):
    """A broken residual."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"residual": {"kind": "scale", "alpha": 0.5}}),)

    def build(self, shape: Shape, parts: Parts) -> "WrongReductionResidual":
        return WrongReductionResidual()


class WrongReductionResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
