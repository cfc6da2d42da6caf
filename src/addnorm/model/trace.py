"""A trace of one forward pass: what every site read and wrote, and what every attention was computed from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention import AttentionProblem, solve, with_value
from addnorm.residual import Read, Site, Stream


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionTrace:
    """The attention of one layer or gated attention unit."""

    layer: int
    """Number of attentions before it."""
    query: Float[Tensor, "batch heads seq head_dim"]
    """The layer's own queries, rotated."""
    key: Float[Tensor, "batch kv_heads seq head_dim"]
    """The layer's own keys, rotated."""
    problem: AttentionProblem
    """Everything that the attended values are computed from."""
    impl: str
    """Name of the implementation of `attend` that the model asks for."""

    def apply(
        self, value: Float[Tensor, "batch kv_heads key value_dim"]
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """The attention applied to other values."""
        return solve(with_value(self.problem, value), self.impl)


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteTrace:
    """One site of a pass; `model.site_branches()` has the modules, in the same order.

    Streams are [batch, seq, width]: the residual's own view of its state.
    """

    site: Site
    before: Tensor
    """The stream before the branch's output joins."""
    read: Read
    """Input of the branches, before their norms."""
    output: Stream
    """Sum of the branches' outputs, after their norms and dropout."""
    written: Tensor
    """The stream after the output has joined, before the norm on the stream."""
    after: Tensor
    """The stream as the next site finds it."""
    state: Any
    """The residual's state after the site, the norm on the stream included."""
    attention: AttentionTrace | None
    """None for a branch without attention."""


@dataclass(kw_only=True, eq=False)
class Trace:
    """Filled by `model(tokens, trace=trace)`; a further pass replaces what an earlier one recorded.

    Tensors are those of the pass itself, so gradients with respect to them can be taken. A traced pass computes every
    layer's scores from queries and keys: where an untraced one would keep a running sum of scores, logits differ by rounding.

    Example:
        >>> import torch
        >>> model = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16).build(seed=0)
        >>> trace = Trace()
        >>> with torch.no_grad():
        ...     logits = model(torch.tensor([[1, 2, 3]]), trace=trace)
        >>> len([float(site.after.square().mean().sqrt()) for site in trace.sites])  # size of the stream after every site
        4
    """

    embeddings: Tensor | None = None
    """The stream that the residual is opened with."""
    entry: Tensor | None = None
    """The stream that enters the first site."""
    sites: list[SiteTrace] = field(default_factory=list)
    """Every site, in order of depth."""

    @property
    def attentions(self) -> Sequence[AttentionTrace]:
        """The attention of every site that attends, in order of depth."""
        return [site.attention for site in self.sites if site.attention is not None]
