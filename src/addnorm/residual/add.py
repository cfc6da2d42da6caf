r"""The plain residual connection: a branch's output is added to the stream.

    x_{l+1} = x_l + f_l(x_l)

Why: the gradient of the sum has an identity term, so it reaches every layer however small the branches' own gradients are.

Source: He et al. 2015, "Deep Residual Learning", arXiv:1512.03385; Zhang (2026) §13.2.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Add(ResidualSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape, parts: Parts) -> "AddResidual":
        return AddResidual()


class AddResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
