r"""A layer's own scores only: the ordinary Transformer.

    s_{m,m} = 1/sqrt(d_k),        s_{m,i} = 0 for i < m

Why: the reference that every score residual is compared with.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, eq. 1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.scores import Scores, ScoresSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Own(ScoresSpec):
    """No settings."""

    def build(self, shape: Shape) -> "OwnScores":
        return OwnScores(shape)


class OwnScores(Scores):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.scale = shape.head_dim**-0.5

    def terms(self, layer: int) -> int:
        return 1

    def weights(self, layer: int) -> tuple[float, ...]:
        return (self.scale,)
