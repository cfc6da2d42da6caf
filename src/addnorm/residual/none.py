r"""No residual: a branch's output replaces the stream.

    x_{l+1} = f_l(x_l)

Why: the control. Without an identity term the gradient is a product of the branches' own, and attention alone brings all
positions together: its output's rank falls doubly exponentially with depth, to a matrix of equal rows.

Source: Zhang (2026) §13.2, a network without residuals; Dong et al. 2021, "Attention is not all you need", arXiv:2103.03404.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Nothing(ResidualSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape, parts: Parts) -> "NoResidual":
        return NoResidual()


class NoResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return y
