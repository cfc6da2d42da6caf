r"""The newest layer weighs twice as much, but the scores promise one weight.

    s_{m,i} = 1/sqrt(d_k) for i < m, and 2/sqrt(d_k) for i = m

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from addnorm.scores import Scores, ScoresSpec
from addnorm.shape import Shape

BREAKS = "shares_one_weight"


@dataclass(frozen=True, kw_only=True)
class PromisesOneWeight(ScoresSpec):
    """A broken score residual."""

    def build(self, shape: Shape) -> "PromisesOneWeightScores":
        return PromisesOneWeightScores(shape)


class PromisesOneWeightScores(Scores):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.scale = shape.head_dim**-0.5

    def weights(self, layer: int) -> tuple[float, ...]:
        return (self.scale,) * layer + (2 * self.scale,)

    def shared_weight(self, layer: int) -> float:
        return self.scale
