r"""A layer's own scores only: the ordinary Transformer.

    s_{m,m} = 1/sqrt(d_k),        s_{m,i} = 0 for i < m

Why: the reference that every score residual is compared with.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, eq. 1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.scores import ScoresSpec, SingleTermScores
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Own(ScoresSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape) -> SingleTermScores:
        return SingleTermScores(shape)
