"""A layer: sites in the order in which they meet the stream, each with its branches and their norms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.block import SitePlan
from addnorm.model.attention import SelfAttention
from addnorm.model.feed_forward import FeedForward, GatedFeedForward, TokenTableBody
from addnorm.model.forward_context import ForwardContext
from addnorm.model.gau import GatedAttentionUnit
from addnorm.residual import Read, SeparateReads
from addnorm.shape import Role


class ForeignBody(nn.Module):
    """The body of a branch that a module of others computes, such as a mixture of experts, behind a joint of ours.

    Args:
        module: computes the branch.
        call: applies the module to what the branch reads, given what the forward context holds for the layer.
        layer: 0-based; the entry of `ForwardContext.foreign` that `call` gets.

    Example::

        ForeignBody(experts, lambda experts, x, given: experts(x)[0], layer=2)
    """

    def __init__(self, module: nn.Module, call: Callable[[nn.Module, Read, Any], Tensor], layer: int) -> None:
        super().__init__()
        self.module = module
        self.call = call
        self.layer = layer

    def forward(self, x: Read, context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        return self.call(self.module, x, context.foreign[self.layer])


Body = SelfAttention | GatedAttentionUnit | FeedForward | GatedFeedForward | TokenTableBody | ForeignBody


class Branch(nn.Module):
    """factor * output_norm( body( input_factor * input_norm(x) ) ), with dropout on what joins the stream.

    `stream_norm` and `stream_factor` belong to the residual's state, to which the model applies them: the factor before the
    outputs of the site join, the norm after.

    Args:
        body: the computation between the norms.
        input_norm, output_norm, stream_norm: norms; identities where the placement has none. The norm on the stream is that of
            the last branch of a site.
        input_factor, stream_factor: numbers of the placement.
        factor: number of the block.
        dropout: rate.
    """

    def __init__(
        self,
        body: Body,
        *,
        input_norm: nn.Module,
        output_norm: nn.Module,
        stream_norm: nn.Module,
        input_factor: float,
        stream_factor: float,
        factor: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.input_norm = input_norm
        self.body = body
        self.output_norm = output_norm
        self.stream_norm = stream_norm
        self.input_factor, self.stream_factor, self.factor = input_factor, stream_factor, factor
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.attends = isinstance(body, SelfAttention | GatedAttentionUnit)
        self.takes_context = self.attends or isinstance(body, TokenTableBody | ForeignBody)

    def forward(self, normed: Read, context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        """The branch's output on what `normed_read` returns, of this branch or of one that shares its norm."""
        output: Tensor = self.body(normed, context) if self.takes_context else self.body(normed)
        return self.joining(output)

    def joining(self, output: Float[Tensor, "*batch seq width"]) -> Float[Tensor, "*batch seq width"]:
        """The output that joins the stream, from the body's."""
        # Dropout after the norm: before it, the norm would scale up what dropout has left.
        y: Tensor = self.dropout(self.output_norm(output))
        return y if self.factor == 1 else self.factor * y

    def normed_read(self, x: Read) -> Read:
        """The body's view of an input, or of separate inputs of its queries, keys and values."""
        return SeparateReads(*map(self.normed, x)) if isinstance(x, SeparateReads) else self.normed(x)

    def normed(self, x: Float[Tensor, "*batch seq width"]) -> Float[Tensor, "*batch seq width"]:
        """The norm on an input, times the placement's factor."""
        return self.input_norm(x) if self.input_factor == 1 else self.input_factor * self.input_norm(x)

    def scaled(self, stream: Tensor) -> Tensor:
        """The stream that the branch's output joins."""
        return self.stream_factor * stream


@dataclass(frozen=True)
class SiteBranches:
    """The branches that read the stream at one site, and whose outputs are written there together."""

    role: Role
    branches: tuple[Branch, ...]
    shares_norm: bool
    """True if all branches read what the first one's norm returns."""

    @property
    def attending(self) -> Branch | None:
        """The branch that attends, if there is one."""
        return next((branch for branch in self.branches if branch.attends), None)

    @property
    def on_stream(self) -> Branch:
        """The branch whose norm and factor act on the stream of the site."""
        return self.branches[-1]

    def output(self, x: Read, context: ForwardContext) -> Float[Tensor, "batch seq width"]:
        """The sum of the branches' outputs on one input."""
        first, *others = self.branches
        # Once where branches share a norm, which would otherwise be computed, and in batch norm counted, once for each.
        normed = first.normed_read(x)
        total = first(normed, context)
        for branch in others:
            total = total + branch(normed if self.shares_norm else branch.normed_read(x), context)
        return total


class TransformerLayer(nn.Module):
    """Branches by name, at the sites where they meet the stream.

    Args:
        plans: the sites, in the order in which they meet the stream.
        branches: every branch of the plans, by name. The names are those of the parameters.
    """

    def __init__(self, plans: Sequence[SitePlan], branches: Mapping[str, Branch]) -> None:
        super().__init__()
        self.plans = tuple(plans)
        for name, branch in branches.items():
            self.add_module(name, branch)

    def sites(self) -> Iterator[SiteBranches]:
        """The sites, in the order in which they meet the stream."""
        for plan in self.plans:
            branches = tuple(cast(Branch, getattr(self, branch.name)) for branch in plan.branches)
            yield SiteBranches(plan.role, branches, plan.input_norm == "shared")

    def branches(self) -> tuple[Branch, ...]:
        """The branches of all sites, in order."""
        return tuple(cast(Branch, branch) for branch in self.children())
