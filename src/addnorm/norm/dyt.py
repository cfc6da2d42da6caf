r"""Dynamic tanh: a bounded function of every entry, in the place of a norm.

    y = tanh(alpha x) * gamma + beta        if bias.norm
    y = tanh(alpha x) * gamma        if not bias.norm

alpha is one learned number, 0.5 at the start.

Why: it squeezes large entries as a trained norm does, without statistics of the vector.

Source: Zhu et al. 2025, "Transformers without Normalization", arXiv:2503.10622.
Differs from the source: nothing.
"""

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
class DyT(NormSpec):
    """tanh of every entry, with a learned steepness."""

    alpha_start: float = 0.5
    """Steepness at the start."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # Where alpha is small, tanh(alpha x) is alpha x.
        linear = {"alpha": 2.0**-40, "weight": 2.0**40, "bias": 0.0}
        return (Reduction(parameters=linear, to={"norm": "none"}),)

    def build(self, dim: int, *, shift: bool) -> "DynamicTanh":
        return DynamicTanh(dim, self.alpha_start, shift=shift)


class DynamicTanh(nn.Module):
    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {"alpha": "scalar", "weight": "vector", "bias": "bias"}

    def __init__(self, dim: int, alpha_start: float, *, shift: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha_start))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if shift else None

    def forward(self, x: Float[Tensor, "*positions dim"]) -> Float[Tensor, "*positions dim"]:
        squeezed = torch.tanh(self.alpha * x) * self.weight
        return squeezed if self.bias is None else squeezed + self.bias
