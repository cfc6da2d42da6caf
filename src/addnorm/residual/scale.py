r"""Scaled residual: every branch joins with the same fixed weight.

    x_{l+1} = x_l + alpha * f_l(x_l),        alpha = residual.alpha

Why: smaller steps keep the stream's size and the gradients of deep networks in hand, at no cost.

Source: Zhang (2026) §13.6.2 and Su (2020) (after Mescheder et al. 2018, arXiv:1801.04406).
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Scale(ResidualSpec):
    """A fixed branch weight."""

    alpha: float = 0.1
    """Weight of every branch; 1 is the plain residual."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"alpha": 1.0}, to={"residual": "add"}),)

    def build(self, shape: Shape, parts: Parts) -> "ScaleResidual":
        return ScaleResidual(self.alpha)


class ScaleResidual(Residual):
    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.alpha * y
