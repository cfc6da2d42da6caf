r"""A field that cannot be hashed.

    x + a f(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass, field

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "spec_round_trips"


@dataclass(frozen=True, kw_only=True)
class MutableField(ResidualSpec):
    """A broken residual."""

    alphas: list[float] = field(default_factory=lambda: [1.0])
    """Weights."""

    def build(self, shape: Shape, parts: Parts) -> "MutableFieldResidual":
        return MutableFieldResidual()


class MutableFieldResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
