r"""Scores summed and divided by the square root of their number.

    s_{m,i} = 1/sqrt(d_k m)

Why: a sum of m independent scores keeps the variance of one.

Source: source 003 V4M2.
Differs from the source: it prints 1/(sqrt(d_k) m), which would be its own Method 3, yet reports another result; the radical
is read as covering both factors.
"""

from dataclasses import dataclass

from addnorm.scores import Scores, ScoresSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class RootMean(ScoresSpec):
    """No settings."""

    def build(self, shape: Shape) -> "RootMeanScores":
        return RootMeanScores(shape)


class RootMeanScores(Scores):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim

    def weights(self, layer: int) -> tuple[float, ...]:
        count = layer + 1
        return ((self.head_dim * count) ** -0.5,) * count
