r"""Scores summed and divided by the square root of their number.

    s_{m,i} = 1/sqrt(d_k m)        if not scores.window
    s_{m,i} = 1/sqrt(d_k min(m, scores.window)),        i > m - scores.window        if scores.window

Why: a sum of m independent scores keeps the variance of one.

Source: Kuang (2025) V4M2.
Differs from the source: nothing. The printed report has 1/(sqrt(d_k) m), which is its own Method 3; its repository has the
radical over both factors.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.scores import SharedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class RootMean(WindowedSpec):
    """One weight for all joining layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
        )

    def build(self, shape: Shape) -> "RootMeanScores":
        return RootMeanScores(shape, self.window)


class RootMeanScores(SharedScores):
    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.head_dim = shape.head_dim

    def weight(self, layer: int) -> float:
        return (self.head_dim * self.terms(layer)) ** -0.5
