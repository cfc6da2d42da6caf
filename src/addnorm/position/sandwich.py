r"""Sandwich: the inner product of two sinusoidal positions is added to the score.

    score_{m,n} <- score_{m,n} + lambda sum_j cos((m - n) theta_j),        theta_j = theta^{-2j/d_k},        j < d_k/2
    lambda = position.scale

Why: a sum of waves of geometric lengths falls about as the logarithm of the distance; nothing to learn.

Source: Chi et al. 2022, "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis",
arXiv:2212.10356; Su (2023).
Differs from the source: one lambda for all heads, as Su (2023) writes it, and as many waves as pairs in a head; the paper
scales every head differently and subtracts a constant, which does not change a softmax.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.fields import require_positive
from addnorm.position import DistancePosition, PositionSpec, frequencies
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Sandwich(PositionSpec):
    """A fixed sum of waves."""

    scale: float = 1.0
    """lambda: the contribution of one wave at distance zero."""
    theta: float = 10_000.0
    """Base of the frequencies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "scale", "theta")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"scale": 1e-30}, to={"position": "none"}),)

    def build(self, shape: Shape) -> "SandwichPosition":
        if shape.head_dim % 2:
            raise InputError(
                f"sandwich has a wave for every pair of entries: head width {shape.head_dim} must be even."
            )
        return SandwichPosition(shape.head_dim, self.scale, self.theta)


class SandwichPosition(DistancePosition):
    def __init__(self, head_dim: int, scale: float, theta: float) -> None:
        super().__init__()
        self.head_dim, self.scale, self.theta = head_dim, scale, theta

    def measure(self, distance: Int64[Tensor, " span"]) -> Float[Tensor, "1 span"]:
        wave = frequencies(self.head_dim, self.theta, distance.device)
        angle = torch.outer(distance.to(wave.device), wave)
        return self.scale * angle.cos().sum(-1)[None]

    def bias(self, layer: int, measured: Float[Tensor, "1 span"]) -> Float[Tensor, "1 span"]:
        return measured
