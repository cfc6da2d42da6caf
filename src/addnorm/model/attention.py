"""The attention branch: projections around a pattern that the pass computes."""

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.bias import Biases, QKBiasSpec
from addnorm.model.forward_context import ForwardContext
from addnorm.model.linear import Linear
from addnorm.shape import Shape


class Attention(nn.Module):
    """Multi-head or grouped-query attention.

    Source: Vaswani et al. 2017, arXiv:1706.03762 §3.2; Ainslie et al. 2023, arXiv:2305.13245 (grouped queries).
    """

    def __init__(
        self, shape: Shape, layer: int, biases: Biases, qk_bias: QKBiasSpec, *, std: float, out_std: float
    ) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = shape.head_dim
        self.query = Linear(shape.width, shape.heads * shape.head_dim, bias=False, std=std)
        self.key = Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False, std=std)
        self.value = Linear(shape.width, shape.kv_heads * shape.head_dim, bias=biases.v, std=std)
        self.output = Linear(shape.heads * shape.head_dim, shape.width, bias=biases.o, std=out_std)
        self.qk_bias = qk_bias.build(shape, q=biases.q, k=biases.k) if biases.q or biases.k else None

    def forward(self, x: Float[Tensor, "batch seq width"], context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        q_bias, k_bias = self.qk_bias.vectors() if self.qk_bias is not None else (None, None)
        query = self.split(self.query(x, q_bias))  # [batch, heads, seq, head_dim]
        key = self.split(self.key(x, k_bias))  # [batch, kv_heads, seq, head_dim]
        value = self.split(self.value(x))  # [batch, kv_heads, seq, head_dim]
        return self.output(self.join(context.attend(self.layer, query, key, value)))

    @property
    def value_projection(self) -> Linear:
        """The matrix that `gate_and_value` reads."""
        return self.value

    def gate_and_value(
        self, projected: Float[Tensor, "*batch seq entries"]
    ) -> tuple[None, Float[Tensor, "*batch kv_heads seq head_dim"]]:
        """No gate, and the heads' values."""
        return None, self.split(projected)

    def split(self, x: Float[Tensor, "*batch seq entries"]) -> Float[Tensor, "*batch heads seq head_dim"]:
        """Entries to heads."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-2, -3)

    def join(self, x: Float[Tensor, "*batch heads seq head_dim"]) -> Float[Tensor, "*batch seq entries"]:
        """Heads to entries."""
        return x.transpose(-2, -3).flatten(-2)
