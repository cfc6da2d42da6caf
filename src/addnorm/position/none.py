r"""No position encoding: order enters only through the causal mask, if there is one.

    x_0 = embedding(tokens)

Why: causal models learn order from the mask alone; and it isolates the effect of a position encoding.

Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization", arXiv:2305.19466 (NoPE).
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.position import Position, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class NoPosition(PositionSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape) -> "NonePosition":
        return NonePosition()


class NonePosition(Position):
    pass
