r"""The running mean of all layers' scores.

    s_{m,i} = 1/(m sqrt(d_k))        if not scores.window
    s_{m,i} = 1/(min(m, scores.window) sqrt(d_k)),        i > m - scores.window        if scores.window

Why: RealFormer's own variant for deep models, where a plain sum grows with depth.

Source: He et al. 2020, "RealFormer", arXiv:2012.11747 (xLarge); Kuang (2025) V4M3.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.scores import SharedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Mean(WindowedSpec):
    """One weight for all joining layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
        )

    def build(self, shape: Shape) -> "MeanScores":
        return MeanScores(shape, self.window)


class MeanScores(SharedScores):
    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.scale = shape.head_dim**-0.5

    def weight(self, layer: int) -> float:
        return self.scale / self.terms(layer)
