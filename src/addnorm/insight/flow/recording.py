"""A recorded pass of any model, on which every measure of `addnorm.insight.flow` is computed.

It has two makers: `recorded`, from the trace of a model of this library, and `addnorm.insight.probe.recording`, from the calls,
additions and attentions of any other model. Measures do not ask which of the two made it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.kernels.grouped_attention import AttentionProblem, num_visible
from addnorm.model.trace import AttentionTrace, Trace
from addnorm.model.transformer import Transformer
from addnorm.shape import Role
from addnorm.training.objective import Batch
from addnorm.words import Sentence

Block = Float[Tensor, "batch heads query keys"]
ReadOut = Callable[[Tensor], Tensor]
"""Makes logits of a stream [batch, seq, width]."""
Reason = Literal["no_attention", "several_attentions", "combined_heads", "other_positions", "negative_weights"]
"""Code of the sentence in `addnorm.words` that says why a layer has no weights on positions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionRows:
    """The rows of one attention."""

    keys: int
    """Number of positions."""
    block: Callable[[slice], Block]
    """The weights at some positions. A row may add up to less than one."""
    visible: Int64[Tensor, "#batch #heads query"]
    """Number of positions that a row sees."""
    query: Float[Tensor, "batch heads query head_dim"] | None
    """Queries as they are multiplied with keys; None if the scores are not one product."""
    key: Float[Tensor, "batch kv_heads keys head_dim"] | None
    summed: AttentionProblem | None = None
    """The terms of scores that are summed over layers; None for scores of one layer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerAttention:
    """One attention."""

    layer: int
    order: int | None
    """`order` of the site whose branch attends; None if that is not known."""
    rows: Callable[[], AttentionRows | Reason]
    """Computes the rows. Not every pass is measured for attention, and they may cost as much as the pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSite:
    """One place where a branch's output joins the stream."""

    layer: int
    order: int
    """Number of sites before it in its layer."""
    role: Role
    added: Tensor | None
    """The branch's output, which joins; None if the streams before and after have different shapes."""
    written: Tensor
    """The stream after that, before a norm on it."""
    after: Tensor
    """The stream as the next site finds it."""
    modules: tuple[nn.Module, ...] | None
    """Modules of the branches, of which and of the stream gradients are taken; None if the pass does not tell them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedLayer:
    """One layer, with the stream before and after it."""

    module: nn.Module
    entry: Tensor
    output: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """One pass. Its tensors are those of the pass itself, so that gradients with respect to them can be taken."""

    logits: Tensor | None
    """None if the model has none."""
    embedding: nn.Module | None
    """The module that embeds tokens."""
    entry: Tensor
    """The stream that enters the first site."""
    layers: Sequence[RecordedLayer]
    sites: Sequence[RecordedSite]
    attentions: Sequence[LayerAttention]
    """In order of depth; the place of an attention in all passes is its index."""
    read_out: Callable[[], ReadOut | None]
    """Finds the final norm and the head; None if nothing makes the logits of the last stream."""
    missing: Mapping[str, Sentence] = field(default_factory=dict)
    """Parts of the model that were not found."""


def recorded(model: Transformer, batch: Batch) -> Recording:
    """Record a pass of a model of this library."""
    trace = Trace()
    logits = model(batch.inputs, trace=trace)
    assert trace.entry is not None  # filled by every traced pass
    layers, sites, attentions = list[RecordedLayer](), list[RecordedSite](), list[LayerAttention]()
    for number, module in enumerate(model.layers):
        of_layer = [
            pair for pair in zip(trace.sites, model.site_branches(), strict=True) if pair[0].site.layer == number
        ]
        for order, (site, branches) in enumerate(of_layer):
            same_shape = site.before.shape == site.written.shape
            sites.append(
                RecordedSite(
                    layer=number,
                    order=order,
                    role=site.site.role,
                    added=site.written - site.before if same_shape else None,
                    written=site.written,
                    after=site.after,
                    modules=tuple(branches.branches),
                )
            )
            if site.attention is not None:
                rows = partial(rows_of_trace, site.attention)
                attentions.append(LayerAttention(layer=number, order=order, rows=rows))
        layers.append(RecordedLayer(module=module, entry=of_layer[0][0].before, output=of_layer[-1][0].after))
    return Recording(
        logits=logits,
        embedding=model.embedding,
        entry=trace.entry,
        layers=layers,
        sites=sites,
        attentions=attentions,
        read_out=lambda: model.read_out,
    )


def rows_of_trace(attention: AttentionTrace) -> AttentionRows:
    """The rows of an attention of one of our models, which is applied to columns of the identity matrix."""
    p = attention.problem

    def block(columns: slice) -> Block:
        count = columns.stop - columns.start
        # Attention is a linear map of the values, so applied to columns of the identity it gives its own columns: by
        # whichever implementation the model uses, with its sinks and masks, and only as many columns at a time as fit.
        identity = torch.zeros(p.key, count, dtype=p.value.dtype, device=p.value.device)
        identity[columns] = torch.eye(count, dtype=p.value.dtype, device=p.value.device)
        return attention.apply(identity.expand(p.batch, p.kv_heads, *identity.shape))

    return AttentionRows(
        keys=p.key,
        block=block,
        visible=num_visible(p)[:, None],
        query=attention.query,
        key=attention.key,
        summed=p if len(p.queries) > 1 else None,
    )
