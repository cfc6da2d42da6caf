r"""Gated attention: a sigmoid of the branch's input scales what each head has attended to.

    z = y * sigma(x W_g)

W_g gives one number per head (`head`), or one per entry of each head (`channel`).

Why: a non-linear step between the value matrix and the output matrix, and a way for a head to write nothing: attention need not
collect on a first token that nobody reads. With W_g = 0 every output is halved.

Source: Qiu et al. 2025, "Gated Attention for Large Language Models", arXiv:2505.06708 (its G1).
Differs from the source: nothing.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.attended import Attended, AttendedSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Gate(AttendedSpec):
    """A gate that depends on the input."""

    per: Literal["head", "channel"] = "channel"
    """One gate per head, or one per entry of each head."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        halved = {"placement": "sandwich", "bias": False}  # the norm after the branch takes the half out
        to = {"attended": "plain"}
        return tuple(
            Reduction(
                settings={"per": per}, parameters={"weight": 0.0}, given=halved, to=to, equal="after the next norm"
            )
            for per in ("head", "channel")
        )

    def build(self, shape: Shape, layer: int, *, std: float) -> "GateAttended":
        return GateAttended(shape, 1 if self.per == "head" else shape.value_dim, std)


class GateAttended(Attended):
    parameter_roles = {"weight": "hidden_matrix"}

    def __init__(self, shape: Shape, gates: int, std: float) -> None:
        super().__init__()
        self.gates, self.std = gates, std
        self.weight = nn.Parameter(torch.empty(shape.heads * gates, shape.width))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.std, generator=generator)

    def forward(self, y: Tensor, x: Tensor, value: Tensor) -> Tensor:
        gate = F.linear(x, self.weight).unflatten(-1, (-1, self.gates)).transpose(-2, -3)
        return y * torch.sigmoid(gate).to(y.dtype)
