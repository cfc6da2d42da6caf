r"""Hybrid gate: a sigmoid of the branch's input and of what the heads have attended to scales every head's output.

    z = y * sigma(x W_g + y W_d W_u)        W_d: heads * d_v x attended.rank; W_u = 0 at initialisation

y are the outputs of all heads side by side, so that every gate sees all heads.

Why: a gate that reads the input alone does not know what attention has gathered; with W_u = 0 it is the gate that does not.

Source: 2026, "HyGA", arXiv:2608.11805 (its abstract); the form of x-transformers, https://github.com/lucidrains/x-transformers.
Differs from the source: we have read the abstract alone; rank and start are ours.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.attended import Attended, AttendedSpec
from addnorm.fields import require_at_least
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class HybridGate(AttendedSpec):
    """A gate per entry of each head, which depends on the input and on all heads' outputs."""

    rank: int = 16
    """Rank of the matrix from the heads' outputs to the gates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "rank")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"attended": "gate"}),
            Reduction(parameters={"up": 0.0}, to={"attended": {"kind": "gate", "per": "channel"}}),
        )

    def build(self, shape: Shape, layer: int, *, std: float) -> "HybridGateAttended":
        return HybridGateAttended(shape, self.rank, std)


class HybridGateAttended(Attended):
    parameter_roles = {"weight": "hidden_matrix", "down": "hidden_matrix", "up": "hidden_matrix"}

    def __init__(self, shape: Shape, rank: int, std: float) -> None:
        super().__init__()
        self.entries, self.std = shape.value_dim, std
        self.weight = nn.Parameter(torch.empty(shape.heads * shape.value_dim, shape.width))
        self.down = nn.Parameter(torch.empty(rank, shape.heads * shape.value_dim))
        self.up = nn.Parameter(torch.zeros(shape.heads * shape.value_dim, rank))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name in ("weight", "down"):
            nn.init.normal_(getattr(self, name), std=self.std, generator=generator)

    def forward(self, y: Tensor, x: Tensor, value: Tensor) -> Tensor:
        heads = y.transpose(-2, -3).flatten(-2)  # [..., seq, heads * value_dim]
        logits = F.linear(x, self.weight) + F.linear(F.linear(heads, self.down), self.up)
        return y * torch.sigmoid(logits.unflatten(-1, (-1, self.entries)).transpose(-2, -3)).to(y.dtype)
