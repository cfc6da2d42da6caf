r"""Scaled heads: what each head has attended to is multiplied by a learned number.

    z_h = gamma_h y_h        gamma_h = 1 at initialisation

Why: pre-norm gives early layers larger gradients than late ones; the numbers let every head find its own size.

Source: Shleifer et al. 2021, "NormFormer", arXiv:2110.09456 §3.1 (HeadScale).
Differs from the source: nothing; NormFormer's norm after the attention is the placement `normformer`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.attended import Attended, AttendedSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class HeadScale(AttendedSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"attended": "plain"}),)

    def build(self, shape: Shape, layer: int, *, std: float) -> "HeadScaleAttended":
        return HeadScaleAttended(shape.heads)


class HeadScaleAttended(Attended):
    parameter_roles = {"gamma": "scalar"}

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(heads))

    def forward(self, y: Tensor, x: Tensor, value: Tensor) -> Tensor:
        return y * self.gamma[:, None, None].to(y.dtype)
