r"""Rotary positions: pairs of query and key entries are rotated by an angle that grows with the position.

    (q_{2j}, q_{2j+1}) <- R(t theta_j) (q_{2j}, q_{2j+1}),        theta_j = theta^{-2j/r},        j < r/2

r is the rotated part of the head width (all of it, or `fraction` of it; the entries after r stay as they are). Then
q_m . k_n depends on positions through n - m alone.

Why: relative positions at no cost in memory, with any memory-linear attention.

Source: Su et al. 2021, "RoFormer", arXiv:2104.09864, its general form; Su (2023); partial rotation: GPT-NeoX.
Differs from the source: nothing. Pairs are neighbours (2j, 2j+1), as in the source; some code bases pair j with j + r/2,
which is equal up to a fixed permutation of the entries.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.fields import require_positive
from addnorm.position import Angles, Position, PositionSpec, angles, frequencies, turn
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Rope(PositionSpec):
    """Rotation of queries and keys."""

    theta: float = 10_000.0
    """Base of the frequencies."""
    fraction: float = 1.0
    """Share of the head width that is rotated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "theta", "fraction")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # Of four pairs, the first turns by one radian per position whatever the base; with a huge one the others stand still.
        return (Reduction(settings={"theta": 1e300}, to={"position": {"kind": "rope", "fraction": 0.25}}),)

    def build(self, shape: Shape) -> "RopePosition":
        rotated = shape.head_dim * self.fraction
        if not 0 < self.fraction <= 1 or rotated % 2:
            raise InputError(
                f"rope rotates pairs: head width {shape.head_dim} x fraction {self.fraction} = {rotated:g} must be an "
                "even number of at least 2, and the fraction at most 1."
            )
        return RopePosition(int(rotated), self.theta)


class RopePosition(Position):
    def __init__(self, rotated: int, theta: float) -> None:
        super().__init__()
        self.rotated, self.theta = rotated, theta

    def prepare(self, start: int, seq: int, like: Tensor) -> Angles:
        return angles(start, seq, like, frequencies(self.rotated, self.theta, like.device))

    def rotate(
        self,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Angles,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        return self._rotate(query, prepared), self._rotate(key, prepared)

    def _rotate(self, x: Tensor, angles: Angles) -> Tensor:
        turned = turn(x[..., : self.rotated], *angles)
        return turned if self.rotated == x.shape[-1] else torch.cat((turned, x[..., self.rotated :]), dim=-1)
