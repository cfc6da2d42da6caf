r"""The gated attention unit: attention and a gated feed-forward in one branch.

    (U, V, Z) = SiLU( x W_i )                        U, V: seq × hidden;  Z: seq × key_dim
    Q = Z ⊙ γ_q + a,   K = Z ⊙ γ_k + b               a, b: the q and k biases, if switched on
    O = ( U ⊙ A V ) W_o                              A: one head's attention, from the scores of Q and K

A is the softmax of the scores, or relu(scores)² divided by the number of keys that the row sees. Two units stand for one
attention and one feed-forward branch.

Source: Hua et al. 2022, "Transformer Quality in Linear Time", arXiv:2202.10447, gated attention unit; GAU-α,
https://github.com/ZhuiyiTechnology/GAU-alpha (SiLU on Z too, γ that start at one); Su (2023).
Differs from the source: γ of the paper start at random; the paper divides squared scores by the length, which in a causal
model would let later tokens change earlier ones; here the divisor is the number of visible keys, as in GAU-α's code.
GAU-α's own softmax has scores times log n / log 512 ("softmax_plus"); here that is the evaluation switch `log_n`.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.attended import Attended
from addnorm.bias import Biases, QKBiasSpec
from addnorm.errors import InputError
from addnorm.model.forgetting import ForgettingGate
from addnorm.model.forward_context import ForwardContext
from addnorm.model.linear import Linear
from addnorm.roles import ParameterRole
from addnorm.shape import Shape


class GatedAttentionUnit(nn.Module):
    """One unit, without its norms; `shape` has one head of width key_dim and one layer per unit."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {"query_scale": "vector", "key_scale": "vector"}

    def __init__(
        self,
        shape: Shape,
        layer: int,
        biases: Biases,
        qk_bias: QKBiasSpec,
        *,
        std: float,
        out_std: float,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        attended: Attended | None = None,
        inner_norm: nn.Module | None = None,
        forgetting: ForgettingGate | None = None,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.sizes = [shape.hidden, shape.hidden, shape.head_dim]
        self.input = Linear(shape.width, sum(self.sizes), bias=biases.up, std=std)
        self.query_scale = nn.Parameter(torch.ones(shape.head_dim))
        self.key_scale = nn.Parameter(torch.ones(shape.head_dim))
        self.output = Linear(shape.hidden, shape.width, bias=biases.o, std=out_std)
        self.qk_bias = qk_bias.build(shape, q=biases.q, k=biases.k) if biases.q or biases.k else None
        self.query_norm, self.key_norm = query_norm, key_norm
        self.attended = attended
        self.inner_norm = inner_norm
        self.forgetting = forgetting

    def forward(self, x: Float[Tensor, "batch seq width"], context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        # One product for all three, as in the source. U and V are the two halves of a gated feed-forward; Z is the only
        # part with a width of its own.
        gate, value, base = self._parts(self.input(x))
        q_bias, k_bias = self.qk_bias.vectors() if self.qk_bias is not None else (None, None)
        query = _normed(_scaled(base, self.query_scale, q_bias), self.query_norm).unsqueeze(
            1
        )  # [batch, 1, seq, key_dim]
        key = _normed(_scaled(base, self.key_scale, k_bias), self.key_norm).unsqueeze(1)  # [batch, 1, seq, key_dim]
        value = context.join_values(self.layer, value, x, query, key)
        gates = None if self.forgetting is None else self.forgetting(x)
        attended = context.attend(self.layer, query, key, value, x, gates)
        if self.attended is not None:
            attended = self.attended(attended, x, value)
        gated = gate * self.join(attended)
        return self.output(gated if self.inner_norm is None else self.inner_norm(gated))

    @property
    def value_projection(self) -> Linear:
        """The matrix that `gate_and_value` reads."""
        return self.input

    def gate_and_value(
        self, projected: Float[Tensor, "*batch seq entries"]
    ) -> tuple[Float[Tensor, "*batch seq hidden"], Float[Tensor, "*batch 1 seq hidden"]]:
        """Return U, and V as the value of the single head."""
        gate, value, _ = self._parts(projected)
        return gate, value

    def _parts(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gate, value, base = F.silu(projected).split(self.sizes, dim=-1)
        return gate, value.unsqueeze(-3), base

    def join(self, x: Float[Tensor, "*batch 1 seq hidden"]) -> Float[Tensor, "*batch seq hidden"]:
        """Drop the axis of the single head."""
        return x.squeeze(-3)


def _scaled(base: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    # Back to the projection's type: under autocast scale and offset have a wider one.
    return (base * scale if offset is None else base * scale + offset).to(base.dtype)


def _normed(x: Tensor, norm: nn.Module | None) -> Tensor:
    normed: Tensor = x if norm is None else norm(x).to(x.dtype)
    return normed


def require_one_head(shape: Shape, biases: Biases, activation: str) -> None:
    """Raises:
    InputError: settings that only attention and feed-forward branches have.
    """
    if shape.heads != 1:
        raise InputError(f"a gated attention unit: expected heads 1, got {shape.heads}. Set heads: 1.")
    if activation != "swiglu":
        raise InputError(
            f"a gated attention unit: expected activation 'swiglu', because its gate is SiLU, got {activation!r}. "
            "Leave it at 'swiglu'."
        )
    for one, other, matrix in (("up", "v", "makes U, V and Z"), ("down", "o", "writes to the stream")):
        if getattr(biases, one) != getattr(biases, other):
            raise InputError(
                f"in a gated attention unit one matrix {matrix}: bias.{one} and bias.{other} are one switch, "
                f"got {getattr(biases, one)} and {getattr(biases, other)}. Set both alike."
            )
