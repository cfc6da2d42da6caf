r"""The plain residual connection: a branch's output is added to the stream.

    x_{l+1} = x_l + f_l(x_l)

Why: the gradient of the sum has an identity term, so it reaches every layer however small the branches' own gradients are.

Source: He et al. 2015, "Deep Residual Learning", arXiv:1512.03385; Zhang (2026) §13.2.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Add(ResidualSpec):
    """No settings."""

    @classmethod
    def neutral(cls) -> "Add":
        return cls()

    def build(self, shape: Shape) -> "AddResidual":
        return AddResidual()


class AddResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y
