r"""A layer's own values only: the ordinary Transformer.

    v_l = W_V x_l

Why: the reference that every value residual is compared with.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, eq. 1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.values import ValuesSpec


@dataclass(frozen=True, kw_only=True)
class Own(ValuesSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape, *, vocab: int, std: float) -> None:
        return None
