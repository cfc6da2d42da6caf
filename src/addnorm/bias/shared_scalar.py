r"""One number for all heads and entries, and the same one for queries and keys.

    q <- q + a 1,        k <- k + a 1,        a in R        if bias.q and bias.k

Why: one number per layer is the least a bias can be; the fourth term is a^2 1^T R_{n-m} 1.

Source: Su (2023), comments.
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
class SharedScalar(QKBiasSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"bias": Biases.all(True, q=False, k=False)}),
            Reduction(parameters={"qk": 0.3}, to={"qk_bias": "scalar"}, theirs={"q": 0.3, "k": 0.3}),
        )

    def build(self, shape: Shape, *, q: bool, k: bool) -> "SharedScalarBias":
        if not (q and k):
            raise InputError("bias shape 'shared_scalar' is one parameter of q and k: switch both q and k on.")
        return SharedScalarBias(shape)


class SharedScalarBias(QKBias):
    parameter_roles = {"qk": "bias"}

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.q_width, self.k_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.qk = nn.Parameter(torch.zeros(1))

    def vectors(self) -> Vectors:
        return self.qk.expand(self.q_width), self.qk.expand(self.k_width)
