r"""Scores summed with one learned positive divisor per pair of layers.

    s_{m,i} = 1/(a_{m,i} sqrt(d_k)),        a_{m,i} = 1 at initialisation (so it starts as `sum`)
    i > m - scores.window        if scores.window

Why: each layer weights the scores of earlier layers. m numbers at layer m, kept as a = exp(alpha).

Source: Kuang (2025) V4M5.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.scores import WindowedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Weighted(WindowedSpec):
    """One learned divisor per pair of layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
            Reduction(to={"scores": "sum"}),
        )

    def build(self, shape: Shape) -> "WeightedScores":
        return WeightedScores(shape, self.window)


class WeightedScores(WindowedScores):
    parameter_roles = {"log_a": "scalar"}

    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.scale = shape.head_dim**-0.5
        self.log_a = nn.ParameterList(torch.zeros(self.terms(layer)) for layer in range(shape.depth))

    def weights(self, layer: int) -> Float[Tensor, " terms"]:
        return self.scale * torch.exp(-self.log_a[layer])
