"""A layer: two branches, each with its norms, and the norm that post-norm puts on the stream after it."""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.model.attention import Attention
from addnorm.model.feed_forward import FeedForward, GatedFeedForward
from addnorm.model.gau import GatedAttentionUnit

Body = Attention | GatedAttentionUnit | FeedForward | GatedFeedForward


class Branch(nn.Module):
    """output_norm( body( input_norm(x) ) ), with dropout on what joins the stream.

    `stream_norm` belongs to the place after the branch and is applied by the model, to the residual's state.
    """

    def __init__(
        self,
        body: Body,
        input_norm: nn.Module,
        output_norm: nn.Module,
        stream_norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.input_norm = input_norm
        self.body = body
        self.output_norm = output_norm
        self.stream_norm = stream_norm
        self.dropout = nn.Dropout(dropout)
        self.attends = isinstance(body, Attention | GatedAttentionUnit)

    def forward(self, x: Float[Tensor, "batch seq width"], *side: Any) -> Float[Tensor, "batch seq width"]:
        return self.dropout(self.output_norm(self.body(self.input_norm(x), *side)))


class Layer(nn.Module):
    """An attention branch and a feed-forward branch."""

    attention: Branch
    feedforward: Branch

    def __init__(self, attention: Branch, feedforward: Branch) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward

    def branches(self) -> tuple[Branch, Branch]:
        """Both, in the order in which they meet the stream."""
        return self.attention, self.feedforward


class UnitPair(nn.Module):
    """Two gated attention units, which stand for an attention and a feed-forward branch."""

    first: Branch
    second: Branch

    def __init__(self, first: Branch, second: Branch) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def branches(self) -> tuple[Branch, Branch]:
        """Both, in the order in which they meet the stream."""
        return self.first, self.second
