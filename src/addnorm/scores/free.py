r"""Scores summed with one learned positive divisor per pair of layers, the head width left out.

    s_{m,i} = 1/a_{m,i},        a_{m,i} = sqrt(d_k) at initialisation (so it starts as `sum`)
    i > m - scores.window        if scores.window

Why: the same family as `weighted` in another parametrisation; what differs is where weight decay pulls to.

Source: Kuang (2025) V4M7.
Differs from the source: nothing. a = exp(alpha) with alpha learned.
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
class Free(WindowedSpec):
    """One learned divisor per pair of layers."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        usual = {"log_a": 0.5 * math.log(8)}  # of a head of eight entries
        return (
            Reduction(settings={"window": 1}, parameters=usual, to={"scores": "own"}),
            Reduction(parameters=usual, given={"depth": 1}, to={"scores": "own"}),
            Reduction(parameters=usual, to={"scores": "sum"}),
        )

    def build(self, shape: Shape) -> "FreeScores":
        return FreeScores(shape, self.window)


class FreeScores(WindowedScores):
    parameter_roles = {"log_a": "scalar"}

    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        start = 0.5 * math.log(shape.head_dim)
        self.log_a = nn.ParameterList(torch.full((self.terms(layer),), start) for layer in range(shape.depth))

    def weights(self, layer: int) -> Float[Tensor, " terms"]:
        return torch.exp(-self.log_a[layer])
