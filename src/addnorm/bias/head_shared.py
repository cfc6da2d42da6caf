r"""One bias vector for all heads.

    q_h <- q_h + a,        a in R^{d_k}, the same for every head h        if bias.q
    k_h <- k_h + b,        b in R^{d_k}, the same for every head h        if bias.k

Why: Su's (2023) effect needs a preferred direction per rotary frequency; this asks whether heads need their own.

Source: Su (2023) and its comments.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.bias import PerHeadBias, QKBiasSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class HeadShared(QKBiasSpec):
    """No settings."""

    def build(self, shape: Shape, *, q: bool, k: bool) -> "HeadSharedBias":
        return HeadSharedBias(shape, shape.head_dim if q else None, shape.head_dim if k else None)


class HeadSharedBias(PerHeadBias):
    def spread(self, bias: Tensor, heads: int) -> Tensor:
        return bias.repeat(heads)
