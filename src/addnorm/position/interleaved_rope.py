r"""Interleaved rotary positions: queries and keys are rotated in most layers, and in every n-th not at all.

    (q_{2j}, q_{2j+1}) <- R(t theta_j) (q_{2j}, q_{2j+1}),  theta_j = theta^{-2j/d_k}        in layers m with m mod n != 0

m counts layers from 1, n is position.every. In the other layers attention is a function of content alone, except for the mask.

Why: layers without positions find what is far away however far it is, and layers with them keep the order; together they read
longer sequences than they were trained on.

Source: Yang et al. 2025, "RoPE to NoPE and back again", arXiv:2501.18795; Llama 4 and SmolLM3 (every fourth layer) in
Transformers, https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/smollm3/modeling_smollm3.py.
Differs from the source: Llama 4 further scales queries in layers without positions by a logarithm of the position, and gives
the other layers a chunked mask.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.fields import require_at_least, require_positive
from addnorm.position import Angles, Position, PositionSpec, angles, frequencies, turn
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class InterleavedRope(PositionSpec):
    """Rotation of queries and keys in some layers."""

    every: int = 4
    """n: the n-th layer, the 2n-th and so on have no positions."""
    theta: float = 10_000.0
    """Base of the frequencies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "every")
        require_positive(self, "theta")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"every": 1000}, to={"position": "rope"}),
            Reduction(settings={"every": 1}, to={"position": "none"}),
        )

    def build(self, shape: Shape) -> "InterleavedRopePosition":
        if shape.head_dim % 2:
            raise InputError(f"interleaved_rope rotates pairs: expected an even head width, got {shape.head_dim}.")
        return InterleavedRopePosition(shape.head_dim, self.theta, self.every)


class InterleavedRopePosition(Position):
    def __init__(self, head_dim: int, theta: float, every: int) -> None:
        super().__init__()
        self.head_dim, self.theta, self.every = head_dim, theta, every

    def prepare(self, start: int, seq: int, like: Tensor) -> Angles:
        return angles(start, seq, like, frequencies(self.head_dim, self.theta, like.device))

    def rotate_layer(
        self,
        layer: int,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Angles,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        return (turn(query, *prepared), turn(key, *prepared)) if (layer + 1) % self.every else (query, key)
