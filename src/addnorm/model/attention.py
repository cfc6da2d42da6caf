"""The attention branch: projections around the attention that the forward context computes."""

from collections.abc import Mapping
from types import MappingProxyType

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.attended import Attended
from addnorm.bias import Biases, QKBiasSpec
from addnorm.errors import AddnormError
from addnorm.model.convolution import Convolved, ShortConvolution
from addnorm.model.forgetting import ForgettingGate
from addnorm.model.forward_context import ForwardContext
from addnorm.model.linear import Linear
from addnorm.residual import Read, SeparateReads, separate
from addnorm.shape import Shape


class SelfAttention(nn.Module):
    """Multi-head or grouped-query attention.

    Source: Vaswani et al. 2017, arXiv:1706.03762 §3.2; Ainslie et al. 2023, arXiv:2305.13245 (grouped queries).
    """

    def __init__(
        self,
        shape: Shape,
        layer: int,
        biases: Biases,
        qk_bias: QKBiasSpec,
        *,
        std: float,
        value_std: float,
        out_std: float,
        own_values: bool = True,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        attended: Attended | None = None,
        inner_norm: nn.Module | None = None,
        forgetting: ForgettingGate | None = None,
        convolutions: Mapping[Convolved, ShortConvolution] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = shape.head_dim
        self.query = Linear(shape.width, shape.heads * shape.head_dim, bias=False, std=std)
        self.key = Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False, std=std)
        entries = shape.kv_heads * shape.head_dim
        self.value = Linear(shape.width, entries, bias=biases.v, std=value_std) if own_values else None
        self.output = Linear(shape.heads * shape.head_dim, shape.width, bias=biases.o, std=out_std)
        # Not a bias of the two projections: a mechanism of the room `bias` makes the vector, of any shape, and the
        # projection adds it in its own product.
        self.qk_bias = qk_bias.build(shape, q=biases.q, k=biases.k) if biases.q or biases.k else None
        self.query_norm, self.key_norm = query_norm, key_norm
        self.attended = attended
        self.inner_norm = inner_norm
        self.forgetting = forgetting
        self.convolution = (
            nn.ModuleDict({str(of): module for of, module in convolutions.items()}) if convolutions else None
        )

    def forward(self, x: Read, context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        of = separate(x if isinstance(x, SeparateReads) else self.convolved("input", x, context))
        q_bias, k_bias = self.qk_bias.vectors() if self.qk_bias is not None else (None, None)
        # The order is part of the definition, and that of the checkpoints which conversion tables read: bias, convolution,
        # norm of each head, rotation (in `context.attend`). A bias after the rotation would be another model.
        query = self.split(self.convolved("query", self.query(of.query, q_bias), context), self.query_norm)
        key = self.split(self.convolved("key", self.key(of.key, k_bias), context), self.key_norm)
        own = None if self.value is None else self.split(self.convolved("value", self.value(of.value), context))
        value = context.join_values(self.layer, own, of.value, query, key)  # [batch, kv_heads, seq, head_dim]
        gates = None if self.forgetting is None else self.forgetting(of.query)
        attended = context.attend(self.layer, query, key, value, of.query, gates)
        if self.attended is not None:
            attended = self.attended(attended, of.query, value)
        joined = self.join(attended)
        return self.output(joined if self.inner_norm is None else self.inner_norm(joined))

    def convolved(
        self, of: Convolved, x: Float[Tensor, "batch seq entries"], context: ForwardContext
    ) -> Float[Tensor, "batch seq entries"]:
        """The convolved `x`, which is the branch's input or one of its projections."""
        if self.convolution is None or of not in self.convolution:
            return x
        y: Tensor = self.convolution[of](x, context.padding, context.cache)
        return y

    @property
    def value_projection(self) -> Linear:
        """The matrix that `gate_and_value` reads.

        Raises:
            AddnormError: the layer has none, because another layer's values stand for its own.
        """
        if self.value is None:
            raise AddnormError(f"attention: expected values of its own in layer {self.layer}, got none.")
        return self.value

    def gate_and_value(
        self, projected: Float[Tensor, "*batch seq entries"]
    ) -> tuple[None, Float[Tensor, "*batch kv_heads seq head_dim"]]:
        """Return None for the gate, and the values of every head."""
        return None, self.split(projected)

    def split(
        self, x: Float[Tensor, "*batch seq entries"], norm: nn.Module | None = None
    ) -> Float[Tensor, "*batch heads seq head_dim"]:
        """Split entries into heads, and norm each head's entries."""
        # A norm takes three axes and norms the last. Here its three are positions, heads and a head's entries, so that
        # any number of axes before them, such as that of layers that run again, changes nothing.
        by_head = x.unflatten(-1, (-1, self.head_dim))
        if norm is not None:
            by_head = norm(by_head.flatten(0, -3)).view_as(by_head).to(x.dtype)  # under autocast a gain is wider
        return by_head.transpose(-2, -3)

    def join(self, x: Float[Tensor, "*batch heads seq head_dim"]) -> Float[Tensor, "*batch seq entries"]:
        """Join heads to entries."""
        return x.transpose(-2, -3).flatten(-2)
