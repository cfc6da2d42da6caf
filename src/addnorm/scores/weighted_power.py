r"""Scores summed with a learned divisor and a learned power of the head width per pair of layers.

    s_{m,i} = 1/(a_{m,i} d_k^{b_{m,i}}),        a_{m,i} = 1, b_{m,i} = 0.5 at initialisation (so it starts as `sum`)
    i > m - scores.window        if scores.window

Why: the source's most general rule. One direction per pair is redundant: (ln a, b) enter only through ln a + b ln d_k.

Source: Kuang (2025) V4M6.
Differs from the source: nothing. a = exp(alpha) with alpha learned, as the source's printed values show.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.scores import WindowedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class WeightedPower(WindowedSpec):
    """A learned divisor and a learned exponent per pair of layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
            Reduction(to={"scores": "sum"}),
        )

    def build(self, shape: Shape) -> "WeightedPowerScores":
        return WeightedPowerScores(shape, self.window)


class WeightedPowerScores(WindowedScores):
    parameter_roles = {"log_a": "scalar", "b": "scalar"}

    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.log_head_dim = math.log(shape.head_dim)
        self.log_a = nn.ParameterList(torch.zeros(self.terms(layer)) for layer in range(shape.depth))
        self.b = nn.ParameterList(torch.full((self.terms(layer),), 0.5) for layer in range(shape.depth))

    def weights(self, layer: int) -> Float[Tensor, " terms"]:
        return torch.exp(-self.log_a[layer] - self.b[layer] * self.log_head_dim)
