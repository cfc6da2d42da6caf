r"""ALiBi: the score falls with the distance, in every head at a slope of its own.

    score_{m,n} <- score_{m,n} - slope_h |m - n|,        slope_h = 2^{-8h/H},        h = 1 … H

If H is not a power of two: the slopes of the next smaller power P, then every second of those of 2P.

Why: nothing to learn and defined at any distance, so that a model can read longer texts than in training.

Source: Press et al. 2021, "Train Short, Test Long", arXiv:2108.12409 §3; the slopes of other head counts from its code,
https://github.com/ofirpress/attention_with_linear_biases.
Differs from the source: |m - n| instead of m - n, so that masked models are defined; causal ones see no difference.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from addnorm.kernels import constant, precise
from addnorm.position import DistancePosition, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Alibi(PositionSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape) -> "AlibiPosition":
        return AlibiPosition(slopes(shape.heads))


class AlibiPosition(DistancePosition):
    def __init__(self, slopes: list[float]) -> None:
        super().__init__()
        self.slopes = slopes

    def measure(self, distance: Int64[Tensor, " span"]) -> Float[Tensor, "heads span"]:
        device = precise(distance.device)
        return -torch.outer(constant(self.slopes, device, torch.float64), distance.abs().to(device))

    def bias(self, layer: int, measured: Float[Tensor, "heads span"]) -> Float[Tensor, "heads span"]:
        return measured


def slopes(heads: int) -> list[float]:
    """One slope per head."""
    power = 2 ** (heads.bit_length() - 1)
    own = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2 ** (-8 * (h + 1) / (2 * power)) for h in range(0, 2 * power, 2)]
    return own + between[: heads - power]
