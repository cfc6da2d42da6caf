"""Factors of one layer's scores, before any average.

sample     sequences         seq       positions          pairs     two neighbouring or opposite entries that turn
heads      query heads; kv_heads of keys serve heads / kv_heads query heads each
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreFactors:
    """One layer on some samples. Everything but `attended_*` is in float64."""

    layer: int
    query: Float[Tensor, "sample heads seq head_dim"]
    """Projection without bias, not rotated."""
    key: Float[Tensor, "sample kv_heads seq head_dim"]
    query_bias: Float[Tensor, "heads head_dim"]
    """a of each head; zeros without a bias."""
    key_bias: Float[Tensor, "kv_heads head_dim"]
    """b of each key head; zeros without a bias."""
    rotate: Rotate
    """Rotates queries "sample heads seq head_dim" and keys by their positions; linear in both."""
    attended_query: Float[Tensor, "sample heads seq head_dim"]
    """Queries that the model's attention uses, in the model's own dtype."""
    attended_key: Float[Tensor, "sample kv_heads seq head_dim"]
    scale: Float[Tensor, " heads"]
    """Factor on the scores of each head."""
    query_size: Float[Tensor, "sample heads seq head_dim"]
    """Sum of the absolute values of the summands of each entry of q, which bounds its rounding."""
    key_size: Float[Tensor, "sample kv_heads seq head_dim"]
    summands: int
    """Number of products in the sum of each entry."""

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def seq(self) -> int:
        return self.query.shape[2]

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.key.shape[1]

    def turned(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return ((R q, R a), (R k, R b)) at every position, key heads repeated: "sample heads seq head_dim"."""
        query, key = self.rotate(self.query, self.key)
        a = self.query_bias[None, :, None].expand_as(self.query)
        b = self.key_bias[None, :, None].expand_as(self.key)
        query_bias, key_bias = self.rotate(a, b)
        return (query, query_bias), (self.repeated(key), self.repeated(key_bias))

    def repeated(self, key: Tensor) -> Tensor:
        """Repeat key heads for the query heads that read them."""
        return key.repeat_interleave(self.group, dim=1)

    def turned_sizes(self) -> tuple[Tensor, Tensor]:
        """Return the sums of absolute values for each entry of R (q + a) and R (k + b), key heads repeated: "sample heads seq
        head_dim". They are computed per entry, because xPos reduces one pair and enlarges another, which norms do not show."""
        width = self.query.shape[-1]
        # The rotation is known as a function alone. Applied to unit vectors it gives its matrix at each position, whose
        # absolute values carry the bound through it.
        unit = torch.eye(width, dtype=torch.float64, device=self.query.device)[:, None, None].expand(
            -1, 1, self.seq, -1
        )
        query, key = (turned[:, 0].abs() for turned in self.rotate(unit, unit))  # [from, seq, to]
        query_size, key_size = (
            self.query_size + self.query_bias.abs()[:, None],
            self.key_size + self.key_bias.abs()[:, None],
        )
        return (
            torch.einsum("bhsi,isj->bhsj", query_size, query),
            self.repeated(torch.einsum("bhsi,isj->bhsj", key_size, key)),
        )
