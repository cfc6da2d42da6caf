r"""Exclusive self-attention: what a head has attended to loses its component along the position's own value.

    z = y - (y . u) u,        u = v / ||v||

v is the value at the position itself, of the value head that the query head reads.

Why: a position's own value is on the stream already; attention is left with what comes from others.

Source: Zhai 2026, "Exclusive Self Attention", arXiv:2603.09078.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from addnorm.attended import Attended, AttendedSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Exclusive(AttendedSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape, layer: int, *, std: float) -> "ExclusiveAttended":
        return ExclusiveAttended()


class ExclusiveAttended(Attended):
    def forward(self, y: Tensor, x: Tensor, value: Tensor) -> Tensor:
        own = F.normalize(value, dim=-1).unsqueeze(-3)  # [..., kv_heads, 1, seq, value_dim]
        grouped = y.unflatten(-3, (value.shape[-3], -1))
        return (grouped - (grouped * own).sum(-1, keepdim=True) * own).flatten(-4, -3)
