r"""Scores summed, with learned powers of the head width and of the depth below.

    s_{m,i} = 1/(d_k^{a_m} m^{b_m})        if not scores.window
    s_{m,i} = 1/(d_k^{a_m} min(m, scores.window)^{b_m}),        i > m - scores.window        if scores.window
    a_m = 0.5, b_m = 1 at initialisation (so it starts as `mean`)

Why: lets each layer choose how strongly the sum is damped. Two learned numbers per layer, of any sign.

Source: Kuang (2025) V4M4.
Differs from the source: nothing. b_1 cannot learn (1^b = 1, its gradient is exactly zero), and within a layer a and b share
one gradient direction: see `addnorm explain`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.scores import SharedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Power(WindowedSpec):
    """Two learned exponents per layer."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"window": 1}, to={"scores": "own"}),
            Reduction(given={"depth": 1}, to={"scores": "own"}),
            Reduction(to={"scores": "mean"}),
        )

    def build(self, shape: Shape) -> "PowerScores":
        return PowerScores(shape, self.window)


class PowerScores(SharedScores):
    parameter_roles = {"a": "scalar", "b": "scalar"}

    def __init__(self, shape: Shape, window: int | None) -> None:
        super().__init__(window)
        self.log_head_dim = math.log(shape.head_dim)
        self.a = nn.Parameter(torch.full((shape.depth,), 0.5))
        self.b = nn.Parameter(torch.full((shape.depth,), 1.0))

    def weight(self, layer: int) -> Float[Tensor, ""]:
        return torch.exp(-self.a[layer] * self.log_head_dim - self.b[layer] * math.log(self.terms(layer)))
