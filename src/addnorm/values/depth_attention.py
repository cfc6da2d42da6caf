r"""Depth-Attention: a layer's queries attend over the layers so far at their own position, and its values become their mixture.

    v_l <- sum_m softmax_m(q_l . k_m / sqrt(d_k)) v_m,        m = l and the values.most layers before it        if values.most
    v_l <- sum_m softmax_m(q_l . k_m / sqrt(d_k)) v_m,        m = l and all layers before it        if not values.most

q_l: mean of the queries of a key head's group; v_m: what layer m's own matrix gave.

Why: a layer chooses, token by token, whose values the sequence then reads, without a parameter. Neither softmax, over layers or
over the sequence, sees a common shift of all layers' keys; the one over layers sees a shift of one layer's keys. A cache keeps
the mixed values, so decoding needs no more memory. A column (`column: earlier`) has one softmax over sequence and layers.

Source: "Depth-Attention: Cross-Layer Value Mixing for Language Models", 2026, arXiv:2606.05014 (abstract).
Differs from the source: the abstract does not say what the queries of a group do together, nor whether the values of earlier
layers are mixed already; here they are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.fields import require
from addnorm.kernels.depth_mixing import weighted_sum
from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.values import Values, ValuesSpec


@dataclass(frozen=True, kw_only=True)
class DepthAttention(ValuesSpec):
    """Values of earlier layers, by the layer's own queries and their keys."""

    most: int | None = None
    """Largest number of earlier layers, the nearest ones; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "most", self.most is None or self.most >= 0, "at least 0, or null for all earlier layers")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"most": 0}, to={"values": "own"}),
            Reduction(given={"depth": 1}, to={"values": "own"}),
            Reduction(settings={"most": 1}, given={"depth": 2}, to={"values": "depth_attention"}),
        )

    @property
    def reads_tokens(self) -> bool:
        return True

    def build(self, shape: Shape, *, vocab: int, std: float) -> "DepthAttentionValues | None":
        return None if self.most == 0 else DepthAttentionValues(self.most)


class DepthAttentionValues(Values):
    reads_keys = True

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.most = most

    def sources(self, layer: int) -> tuple[int, ...]:
        return tuple(range(0 if self.most is None else max(0, layer - self.most), layer))

    def join(
        self,
        layer: int,
        own: Tensor | None,
        earlier: Sequence[Tensor],
        x: Tensor,
        tokens: Tensor,
        *,
        query: Tensor | None = None,
        keys: Sequence[Tensor] = (),
    ) -> Tensor:
        assert own is not None
        assert query is not None
        if not earlier:
            return own
        of_group = query.unflatten(1, (own.shape[1], -1)).mean(2)  # [batch, kv_heads, seq, head_dim]
        # A product of matrices, as audits know scores, and not a sum of products of entries.
        scores = (of_group.unsqueeze(-2) @ torch.stack(list(keys), -1)).squeeze(-2) * query.shape[-1] ** -0.5
        # A softmax in bfloat16 would not add up to one; the values keep their type.
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).movedim(-1, 0)
        # Positions before heads, as the matrices of values leave them: a view of [batch, seq * kv_heads, value_dim].
        vectors = [value.transpose(1, 2).flatten(1, 2) for value in (*earlier, own)]
        joined = weighted_sum(weights.transpose(2, 3).flatten(2, 3), vectors)
        return joined.unflatten(1, (own.shape[2], -1)).transpose(1, 2)
