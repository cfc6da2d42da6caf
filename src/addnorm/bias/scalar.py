r"""One number for all heads and entries.

    q <- q + a 1,        a in R        if bias.q
    k <- k + b 1,        b in R        if bias.k

Why: the smallest bias that can still make the fourth term a^T R b decay with distance.

Source: Su (2023), comments.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.bias import PerHeadBias, QKBiasSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Scalar(QKBiasSpec):
    """No settings."""

    def build(self, shape: Shape, *, q: bool, k: bool) -> "ScalarBias":
        return ScalarBias(shape, 1 if q else None, 1 if k else None)


class ScalarBias(PerHeadBias):
    def spread(self, bias: Tensor, heads: int) -> Tensor:
        return bias.expand(heads * self.head_dim)
