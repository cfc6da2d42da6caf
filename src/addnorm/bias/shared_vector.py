r"""One bias vector for all heads, and the same one for queries and keys.

    q_h <- q_h + a,        k_h <- k_h + a,        a in R^{d_k}        if bias.q and bias.k

Why: with a = b the fourth term a^T R_{n-m} a is a sum of cosines with positive weights, largest at distance zero.

Source: Su (2023) and its comments.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from torch import nn

from addnorm.bias import Biases, QKBias, QKBiasSpec, Vectors
from addnorm.errors import InputError
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class SharedVector(QKBiasSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        vector = tuple(0.1 * entry for entry in range(-3, 5))  # of a head of eight entries
        return (
            Reduction(to={"bias": Biases.all(True, q=False, k=False)}),
            Reduction(parameters={"qk": vector}, to={"qk_bias": "head_shared"}, theirs={"q": vector, "k": vector}),
        )

    def build(self, shape: Shape, *, q: bool, k: bool) -> "SharedVectorBias":
        if not (q and k):
            raise InputError("bias shape 'shared_vector' is one parameter of q and k: switch both q and k on.")
        return SharedVectorBias(shape)


class SharedVectorBias(QKBias):
    parameter_roles = {"qk": "bias"}

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.qk = nn.Parameter(torch.zeros(shape.head_dim))

    def vectors(self) -> Vectors:
        return self.qk.repeat(self.heads), self.qk.repeat(self.kv_heads)
