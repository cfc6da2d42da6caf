"""A layer: branches in the order in which they meet the stream, each with its norms."""

from collections.abc import Mapping
from typing import Any, Literal, cast

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.model.attention import Attention
from addnorm.model.feed_forward import FeedForward, GatedFeedForward
from addnorm.model.gau import GatedAttentionUnit

Body = Attention | GatedAttentionUnit | FeedForward | GatedFeedForward
Role = Literal["attention", "feedforward"]


class Branch(nn.Module):
    """output_norm( body( input_norm(x) ) ), with dropout on what joins the stream.

    `stream_norm` belongs to the place after the branch; the model applies it to the residual's state.

    Args:
        role: what the branch is, or, of a pair of gated attention units, what it stands for.
        body: the computation between the norms.
        input_norm, output_norm, stream_norm: norms; identities where the placement has none.
        dropout: rate.
    """

    def __init__(
        self,
        role: Role,
        body: Body,
        *,
        input_norm: nn.Module,
        output_norm: nn.Module,
        stream_norm: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.role: Role = role
        self.input_norm = input_norm
        self.body = body
        self.output_norm = output_norm
        self.stream_norm = stream_norm
        self.dropout = nn.Dropout(dropout)
        self.attends = isinstance(body, Attention | GatedAttentionUnit)

    def forward(self, x: Float[Tensor, "batch seq width"], *side: Any) -> Float[Tensor, "batch seq width"]:
        return self.dropout(self.output_norm(self.body(self.input_norm(x), *side)))


class Layer(nn.Module):
    """Branches by name: an attention and a feed-forward branch, or two gated attention units that stand for them.

    Args:
        branches: in the order in which they meet the stream. The names are those of the parameters.
    """

    def __init__(self, branches: Mapping[str, Branch]) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def branches(self) -> tuple[Branch, ...]:
        """The branches, in the order in which they meet the stream."""
        return tuple(cast(Branch, branch) for branch in self.children())
