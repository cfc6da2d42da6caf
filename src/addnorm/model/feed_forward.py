"""The feed-forward branch: two matrices with a non-linearity between them, plain or gated."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.bias import Biases
from addnorm.model.forward_context import ForwardContext
from addnorm.model.linear import Linear
from addnorm.shape import Shape
from addnorm.values.table import TokenTable

PlainActivation = Literal["gelu", "gelu_tanh", "relu", "squared_relu"]
GatedActivation = Literal["geglu_tanh", "swiglu"]
Activation = Literal["geglu_tanh", "gelu", "gelu_tanh", "relu", "squared_relu", "swiglu"]

FUNCTIONS: Mapping[PlainActivation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x).square(),
}
"""Function of each plain activation; `gelu_tanh` is the approximation of GPT-2 and BERT's first code."""
GATES: Mapping[GatedActivation, Callable[[Tensor], Tensor]] = {"geglu_tanh": FUNCTIONS["gelu_tanh"], "swiglu": F.silu}
"""Function of the gate of each gated activation."""


class FeedForward(nn.Module):
    """down( inner_norm( activation( up(x) ) ) ); most placements have no such norm.

    Source: Vaswani et al. 2017, arXiv:1706.03762 §3.3 (ReLU); GPT-1 (GELU, exact); GPT-2 (GELU by tanh);
    So et al. 2021, arXiv:2109.08668 (squared ReLU).
    """

    def __init__(
        self,
        shape: Shape,
        activation: PlainActivation,
        biases: Biases,
        std: float,
        out_std: float,
        inner_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner_norm = inner_norm
        self.up = Linear(shape.width, shape.hidden, bias=biases.up, std=std)
        self.down = Linear(shape.hidden, shape.width, bias=biases.down, std=out_std)

    def forward(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq width"]:
        inner = FUNCTIONS[self.activation](self.up(x))
        return self.down(inner if self.inner_norm is None else self.inner_norm(inner))


class GatedFeedForward(nn.Module):
    """down( inner_norm( activation(gate(x)) * up(x) ) ); most placements have no such norm.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202 (SwiGLU, GEGLU); Gemma (GELU by tanh).
    """

    def __init__(
        self,
        shape: Shape,
        activation: GatedActivation,
        biases: Biases,
        std: float,
        out_std: float,
        inner_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner_norm = inner_norm
        self.gate = Linear(shape.width, shape.hidden, bias=biases.up, std=std)
        self.up = Linear(shape.width, shape.hidden, bias=biases.up, std=std)
        self.down = Linear(shape.hidden, shape.width, bias=biases.down, std=out_std)

    def forward(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq width"]:
        inner = GATES[self.activation](self.gate(x)) * self.up(x)
        return self.down(inner if self.inner_norm is None else self.inner_norm(inner))


class TokenTableBody(nn.Module):
    """out( inner_norm( sigmoid(gate(x)) * table[tokens] ) ), of the block `token_tables`."""

    def __init__(
        self, width: int, vocab: int, entries: int, std: float, out_std: float, inner_norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.inner_norm = inner_norm
        self.table = TokenTable(vocab, entries, std)
        self.gate = Linear(width, entries, bias=False, std=std)
        self.out = Linear(entries, width, bias=False, std=out_std)

    def forward(self, x: Float[Tensor, "batch seq width"], context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        rows: Tensor = self.table(context.tokens)
        inner = torch.sigmoid(self.gate(x)) * rows.to(x.dtype)
        return self.out(inner if self.inner_norm is None else self.inner_norm(inner))


def build_feed_forward(
    shape: Shape,
    activation: Activation,
    biases: Biases,
    *,
    std: float,
    out_std: float,
    inner_norm: nn.Module | None = None,
) -> FeedForward | GatedFeedForward:
    """Build the feed-forward branch with the given activation."""
    if activation == "geglu_tanh" or activation == "swiglu":
        return GatedFeedForward(shape, activation, biases, std, out_std, inner_norm)
    return FeedForward(shape, activation, biases, std, out_std, inner_norm)
