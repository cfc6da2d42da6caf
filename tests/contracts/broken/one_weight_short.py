r"""A layer's own scores get no weight.

    s_{m,i} = 1/sqrt(d_k) for i < m, and nothing for i = m

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from addnorm.scores import Scores, ScoresSpec
from addnorm.shape import Shape

BREAKS = "runs"


@dataclass(frozen=True, kw_only=True)
class OneWeightShort(ScoresSpec):
    """A broken score residual."""

    def build(self, shape: Shape) -> "OneWeightShortScores":
        return OneWeightShortScores()


class OneWeightShortScores(Scores):
    def weights(self, layer: int) -> tuple[float, ...]:
        return (1.0,) * layer
