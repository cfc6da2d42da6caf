r"""Queries and keys are summed over the layers before they meet, instead of their scores.

    A_m = Qt_m Kt_m^T / sqrt(d_k),        Qt_m = Q_m + Qt_{m-1},        Kt_m = K_m + Kt_{m-1}

Why: Su (2020) reads RealFormer as a residual of Q and K without one of V. It costs no more than plain attention; unlike
`sum` it also has the cross terms Q_i K_j^T.

Source: Su (2020), last equation.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.scores import Keys, Queries, ScoresSpec, SingleTermScores
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class AccumulatedProjections(ScoresSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"depth": 1}, to={"scores": "own"}),)

    def build(self, shape: Shape) -> "AccumulatedProjectionsScores":
        return AccumulatedProjectionsScores(shape)


class AccumulatedProjectionsScores(SingleTermScores):
    def merge(self, query: Queries, key: Keys, before: tuple[Queries, Keys] | None) -> tuple[Queries, Keys]:
        if before is None:
            return query, key
        return query + before[0], key + before[1]
