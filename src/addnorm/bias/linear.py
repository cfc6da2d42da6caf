r"""The usual bias: one number per head and entry, as in a linear layer.

    q <- q + a,        a in R^{h d_k}        if bias.q
    k <- k + b,        b in R^{g d_k}        if bias.k

h heads of queries, g of keys; q and k are what the projections give, or a gated attention unit's scaled Z.

Why: what every library means by `bias=True`. Without rotary position b cannot matter (Anonymous, n.d.).

Source: Su (2023); Anonymous (n.d.) §2.1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.bias import Biases, PerHeadBias, QKBiasSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Linear(QKBiasSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # Without a position in the scores, a key bias adds the same number to all scores of a row.
        return (
            Reduction(to={"bias": Biases.all(True, q=False, k=False)}),
            Reduction(parameters={}, given={"position": "none"}, to={"bias": Biases.all(True, k=False)}),
        )

    def build(self, shape: Shape, *, q: bool, k: bool) -> "LinearBias":
        return LinearBias(
            shape,
            shape.heads * shape.head_dim if q else None,
            shape.kv_heads * shape.head_dim if k else None,
        )


class LinearBias(PerHeadBias):
    def spread(self, bias: Tensor, heads: int) -> Tensor:
        return bias
