r"""Derf: the error function of every entry, in the place of a norm.

    y = erf(alpha x + s) * gamma + beta        if bias.norm
    y = erf(alpha x + s) * gamma        if not bias.norm

alpha and s are one learned number each, 0.5 and 0 at the start.

Why: like `dyt`, with a function that its source found to generalise better.

Source: Chen et al. 2025, "Stronger Normalization-Free Transformers", arXiv:2512.10938.
Differs from the source: nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.norm import NormSpec
from addnorm.reduction import Reduction
from addnorm.roles import ParameterRole


@dataclass(frozen=True, kw_only=True)
class Derf(NormSpec):
    """erf of every entry, with a learned steepness and offset."""

    alpha_start: float = 0.5
    """Steepness at the start."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # Where alpha is small, erf(alpha x) is 2 alpha x / sqrt(pi).
        linear = {"alpha": 2.0**-40, "offset": 0.0, "weight": 2.0**39 * math.pi**0.5, "bias": 0.0}
        return (Reduction(parameters=linear, to={"norm": "none"}),)

    def build(self, dim: int, *, shift: bool) -> "DynamicErf":
        return DynamicErf(dim, self.alpha_start, shift=shift)


class DynamicErf(nn.Module):
    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {
        "alpha": "scalar",
        "offset": "scalar",
        "weight": "vector",
        "bias": "bias",
    }

    def __init__(self, dim: int, alpha_start: float, *, shift: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha_start))
        self.offset = nn.Parameter(torch.tensor(0.0))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if shift else None

    def forward(self, x: Float[Tensor, "*positions dim"]) -> Float[Tensor, "*positions dim"]:
        squeezed = torch.erf(self.alpha * x + self.offset) * self.weight
        return squeezed if self.bias is None else squeezed + self.bias
