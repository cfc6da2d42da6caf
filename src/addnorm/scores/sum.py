r"""RealFormer: the scores of all layers so far are summed.

    s_{m,i} = 1/sqrt(d_k)
    so that A_m = Q_m K_m^T / sqrt(d_k) + A_{m-1}        if not scores.window
    i > m - scores.window        if scores.window

Why: a direct path from the first layer's scores to the last; attention is refined from layer to layer instead of recomputed.

Source: He et al. 2020, "RealFormer", arXiv:2012.11747; Su (2020); Kuang (2025) V4M1.
Differs from the source: the sum is of raw scores, before masks and position biases.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.scores import SharedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Sum(WindowedSpec):
    """One weight for all joining layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
        )

    def build(self, shape: Shape) -> "SumScores":
        return SumScores(shape, self.window)


class SumScores(SharedScores):
    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.scale = shape.head_dim**-0.5

    def weight(self, layer: int) -> float:
        return self.scale
