"""Linear projection with normal initial values, and with a bias of its own or one passed to the call."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.roles import ParameterRole


class Linear(nn.Module):
    """y = x W^T + b.

    Args:
        inputs, outputs: entries of the last axis before and after.
        bias: True for a bias, which starts at zero.
        std: standard deviation of the weight's entries at the start.
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {"weight": "hidden_matrix", "bias": "bias"}

    def __init__(self, inputs: int, outputs: int, *, bias: bool, std: float) -> None:
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "weight":
            nn.init.normal_(self.weight, std=self.std, generator=generator)

    def forward(
        self, x: Float[Tensor, "*positions inputs"], bias: Float[Tensor, " outputs"] | None = None
    ) -> Float[Tensor, "*positions outputs"]:
        """Project `x`; `bias` replaces the module's own bias, which must then be off."""
        return F.linear(x, self.weight, self.bias if bias is None else bias)


class Embedding(nn.Embedding):
    """Token table with normal initial values."""

    def __init__(self, vocab: int, width: int, *, std: float) -> None:
        super().__init__(vocab, width, _weight=torch.empty(vocab, width))
        self.std = std

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.std, generator=generator)
