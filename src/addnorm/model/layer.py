"""A layer: branches in the order in which they meet the stream, each with its norms."""

from collections.abc import Mapping
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.model.attention import Attention
from addnorm.model.feed_forward import FeedForward, GatedFeedForward
from addnorm.model.gau import GatedAttentionUnit
from addnorm.residual import Read, SeparateReads
from addnorm.shape import Role

Body = Attention | GatedAttentionUnit | FeedForward | GatedFeedForward


class Branch(nn.Module):
    """output_norm( body( input_factor * input_norm(x) ) ), with dropout on what joins the stream.

    `stream_norm` and `stream_factor` belong to the residual's state, to which the model applies them: the factor before the
    branch's output joins, the norm after.

    Args:
        role: what the branch is, or, of a pair of gated attention units, what it stands for.
        body: the computation between the norms.
        input_norm, output_norm, stream_norm: norms; identities where the placement has none.
        input_factor, stream_factor: numbers of the placement.
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
        input_factor: float,
        stream_factor: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.role: Role = role
        self.input_norm = input_norm
        self.body = body
        self.output_norm = output_norm
        self.stream_norm = stream_norm
        self.input_factor, self.stream_factor = input_factor, stream_factor
        self.dropout = nn.Dropout(dropout)
        self.attends = isinstance(body, Attention | GatedAttentionUnit)

    def forward(self, x: Read, *side: Any) -> Float[Tensor, "batch seq width"]:
        """The branch's output on its input, or on separate inputs of its queries, keys and values."""
        return self.dropout(self.output_norm(self.body(self.normed_read(x), *side)))

    def normed_read(self, x: Read) -> Read:
        """The body's view of an input, or of separate inputs."""
        return SeparateReads(*map(self.normed, x)) if isinstance(x, SeparateReads) else self.normed(x)

    def normed(self, x: Float[Tensor, "*batch seq width"]) -> Float[Tensor, "*batch seq width"]:
        """The norm on an input, times the placement's factor."""
        return self.input_norm(x) if self.input_factor == 1 else self.input_factor * self.input_norm(x)

    def scaled(self, stream: Tensor) -> Tensor:
        """The stream that the branch's output joins."""
        return self.stream_factor * stream


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
