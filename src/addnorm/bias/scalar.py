r"""One number for all heads and entries.

    q <- q + a 1,        a in R        if bias.q
    k <- k + b 1,        b in R        if bias.k

Why: the smallest bias that can still make the fourth term a^T R b decay with distance.

Source: Su (2023), comments.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.bias import Biases, PerHeadBias, QKBiasSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Scalar(QKBiasSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        numbers = {"q": 0.3, "k": -0.2}
        return (
            Reduction(to={"bias": Biases.all(True, q=False, k=False)}),
            Reduction(
                parameters={}, given={"position": "none"}, to={"qk_bias": "scalar", "bias": Biases.all(True, k=False)}
            ),
            Reduction(parameters=numbers, to={"qk_bias": "head_shared"}, theirs=numbers),
        )

    def build(self, shape: Shape, *, q: bool, k: bool) -> "ScalarBias":
        return ScalarBias(shape, 1 if q else None, 1 if k else None)


class ScalarBias(PerHeadBias):
    def spread(self, bias: Tensor, heads: int) -> Tensor:
        return bias.expand(heads * self.head_dim)
