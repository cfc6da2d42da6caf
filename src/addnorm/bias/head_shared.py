r"""One bias vector for all heads.

    q_h <- q_h + a,        a in R^{d_k}, the same for every head h        if bias.q
    k_h <- k_h + b,        b in R^{d_k}, the same for every head h        if bias.k

Why: Su's (2023) effect needs a preferred direction per rotary frequency; this asks whether heads need their own.

Source: Su (2023) and its comments.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.bias import Biases, PerHeadBias, QKBiasSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class HeadShared(QKBiasSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        vector = tuple(0.1 * entry for entry in range(-3, 5))  # of a head of eight entries, of four and of two heads
        return (
            Reduction(to={"bias": Biases.all(True, q=False, k=False)}),
            Reduction(
                parameters={},
                given={"position": "none"},
                to={"qk_bias": "head_shared", "bias": Biases.all(True, k=False)},
            ),
            Reduction(
                parameters={"q": vector, "k": vector},
                to={"qk_bias": "linear"},
                theirs={"q": 4 * vector, "k": 2 * vector},
            ),
        )

    def build(self, shape: Shape, *, q: bool, k: bool) -> "HeadSharedBias":
        return HeadSharedBias(shape, shape.head_dim if q else None, shape.head_dim if k else None)


class HeadSharedBias(PerHeadBias):
    def spread(self, bias: Tensor, heads: int) -> Tensor:
        return bias.repeat(heads)
