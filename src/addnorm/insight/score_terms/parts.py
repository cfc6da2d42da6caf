"""What one layer's scores are made of, before anything is averaged.

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
class Parts:
    """One layer on some samples. Everything but `attended_*` is in float64."""

    layer: int
    query: Float[Tensor, "sample heads seq head_dim"]
    """Projected, without bias, not yet turned."""
    key: Float[Tensor, "sample kv_heads seq head_dim"]
    query_bias: Float[Tensor, "heads head_dim"]
    """a of each head; zeros where there is none."""
    key_bias: Float[Tensor, "kv_heads head_dim"]
    """b of each key head; zeros where there is none."""
    rotate: Rotate
    """Writes positions into queries "sample heads seq head_dim" and keys; linear in both."""
    attended_query: Float[Tensor, "sample heads seq head_dim"]
    """What the model's attention was really given, in the model's own dtype."""
    attended_key: Float[Tensor, "sample kv_heads seq head_dim"]
    scale: Float[Tensor, " heads"]
    """Factor on the scores of each head."""
    query_size: Float[Tensor, "sample heads seq head_dim"]
    """Sum of the absolute values of what was added up to each entry of q + a: what its rounding is a share of."""
    key_size: Float[Tensor, "sample kv_heads seq head_dim"]
    summands: int
    """How many products each entry is a sum of."""

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
        """((R q, R a), (R k, R b)) at every position, key heads repeated for their query heads: "sample heads seq head_dim"."""
        query, key = self.rotate(self.query, self.key)
        a = self.query_bias[None, :, None].expand_as(self.query)
        b = self.key_bias[None, :, None].expand_as(self.key)
        query_bias, key_bias = self.rotate(a, b)
        return (query, query_bias), (self.repeated(key), self.repeated(key_bias))

    def repeated(self, key: Tensor) -> Tensor:
        """Key heads repeated for the query heads that they serve."""
        return key.repeat_interleave(self.group, dim=1)

    def turned_sizes(self) -> tuple[Tensor, Tensor]:
        """The sums of absolute values behind each entry of R (q + a) and R (k + b), key heads repeated: "sample heads seq
        head_dim". Entry by entry: where a rotation fades one pair and lets another grow, as xPos does, norms know neither."""
        width = self.query.shape[-1]
        unit = torch.eye(width, dtype=torch.float64, device=self.query.device)[:, None, None].expand(
            -1, 1, self.seq, -1
        )
        query, key = (turned[:, 0].abs() for turned in self.rotate(unit, unit))  # [from, seq, to]
        return (
            torch.einsum("bhsi,isj->bhsj", self.query_size, query),
            self.repeated(torch.einsum("bhsi,isj->bhsj", self.key_size, key)),
        )
