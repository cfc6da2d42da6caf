r"""The forward and the backward pass of exact grouped attention without the score matrix, tile by tile.

Only inputs and result are kept between the passes; the backward pass computes each tile's probabilities again. Formulas, costs
and memory: derivation.md. Size of the tiles: tiles.py. Their number type: `AttentionProblem.tile_dtype`. If operations are only
counted, all tiles are one product (counting.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.counting import at_once, count_tiles
from addnorm.kernels.grouped_attention.panel import Panel, carve, product, span
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.tiles import spans, tile_of


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Gradient of every differentiable tensor of a problem, in the shape and type of the tensor."""

    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    value: Tensor
    weights: Tensor | None
    """None if the weights are one number."""
    bias: Tensor | None
    """None unless needed."""


def attend_tiles(problem: AttentionProblem, budget: int | None = None) -> tuple[Tensor, Tensor]:
    """Compute the attended values; and with sinks the log-sum-exp of each row, "batch heads query", without them nothing."""
    p, tile = problem, tile_of(problem, budget)
    # In memory positions come before heads, so that the caller can join the heads without a copy.
    out = p.value.new_empty(p.batch, p.query, p.heads, p.value_dim).transpose(1, 2)
    log_sum = p.value.new_empty(p.batch, *((0,) if p.sinks is None else (p.heads, p.query)), dtype=p.dtype)
    if at_once(p):
        count_tiles(p, tile, width=len(p.queries) * p.head_dim + p.value_dim)
        return out, log_sum
    buffer = p.value.new_empty(tile.slabs * p.group * tile.rows * tile.keys, dtype=p.tile_dtype)
    for batch in spans(p.batch, tile.batch):
        for kv_heads in spans(p.kv_heads, tile.kv_heads):
            panel = Panel(p, batch, kv_heads)
            for rows in spans(p.query, tile.rows):
                sums = None if p.sinks is None else log_sum[batch, panel.heads, rows, None]
                probabilities = panel.probabilities(buffer, rows, sums)
                write_attended(panel, rows, probabilities, out)
    return out, log_sum


def write_attended(panel: Panel, rows: slice, probabilities: Tensor, out: Tensor) -> None:
    """Write one tile's attended values; its probabilities, "slab line key", lose what dropout drops."""
    p = panel.problem
    if (kept := panel.kept(rows)) is not None:
        probabilities = probabilities.mul_(kept).div_(1 - p.dropout)
    attended = product(probabilities, span(panel.value, p.keys_seen(rows)))
    by_group = attended.unflatten(1, (p.group, -1)).unflatten(0, (panel.num_items, -1))
    out[panel.batch, panel.heads, rows].unflatten(1, (-1, p.group)).copy_(by_group)


def differentiate_tiles(
    problem: AttentionProblem, grad: Tensor, *, bias_needed: bool, budget: int | None = None
) -> Gradients:
    """Compute the gradients of sum(grad * attended values)."""
    p, tile = problem, tile_of(problem, budget)
    terms = len(p.queries)
    gradients = Gradients(
        queries=tuple(torch.empty_like(query) for query in p.queries),
        keys=tuple(torch.empty_like(key) for key in p.keys),
        value=torch.empty_like(p.value),
        weights=p.value.new_empty(p.batch, p.heads, terms, dtype=p.dtype) if isinstance(p.weights, Tensor) else None,
        bias=torch.zeros_like(p.bias, dtype=p.dtype) if p.bias is not None and bias_needed else None,
    )
    if at_once(p):
        count_tiles(p, tile, width=3 * terms * p.head_dim + 2 * p.value_dim)
        return gradients
    buffers = p.value.new_empty(2, tile.slabs * p.group * tile.rows * tile.keys, dtype=p.tile_dtype)
    for batch in spans(p.batch, tile.batch):
        for kv_heads in spans(p.kv_heads, tile.kv_heads):
            panel = Panel(p, batch, kv_heads)
            sums = Sums(panel)
            share = (grad[batch, panel.heads] / (1 - p.dropout)).to(p.tile_dtype)
            share = share.reshape(len(panel.value), p.group, p.query, p.value_dim)
            for rows in spans(p.query, tile.rows):
                d_scores = _differentiate_tile(panel, rows, share, buffers, sums)
                if gradients.bias is not None:
                    panel.add_bias_gradient(gradients.bias, d_scores, rows)
            hand_out(panel, sums, gradients)
    return gradients


class Sums:
    """Gradients of a panel's factors, which its tiles add up or fill row by row."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.queries = torch.empty_like(panel.queries)
        """Of the products, before the weights; every row is written by one tile."""
        # Transposed, because a product that is added and has few columns is slower than one with few rows: 1.2 times as slow
        # for 64 columns and 4096 rows, five times for 8 and 128 (one AVX2 core).
        self.keys = self._zeros(panel.keys.mT)
        self.value = self._zeros(panel.value.mT)

    def _zeros(self, transposed: Tensor) -> Tensor:
        return torch.zeros_like(transposed, dtype=self.panel.problem.dtype, memory_format=torch.contiguous_format)

    def add_scores(self, rows: slice, d_scores: Tensor, scale: float = 1.0) -> None:
        """Add what one tile's d_scores, "slab line key", give the keys, and write what they give its queries."""
        panel = self.panel
        seen = panel.problem.keys_seen(rows)
        add_product(self.keys[..., seen], panel.lines(panel.queries, rows).mT, d_scores, scale)
        d_lines = product(d_scores, span(panel.keys, seen))
        self.queries[:, :, rows] = d_lines.unflatten(1, (panel.problem.group, -1))


def _differentiate_tile(panel: Panel, rows: slice, share: Tensor, buffers: Tensor, sums: Sums) -> Tensor:
    """Add one tile to the sums; return its d_scores, Float[Tensor, "slab line key"]."""
    grad = panel.lines(share, rows)
    d_scores = differentiate_softmax(panel, rows, panel.probabilities(buffers[0], rows), grad, buffers[1], sums)
    sums.add_scores(rows, d_scores, panel.scale)
    return d_scores


def differentiate_softmax(
    panel: Panel, rows: slice, probabilities: Tensor, grad: Tensor, buffer: Tensor, sums: Sums
) -> Tensor:
    """Compute P ∘ (dP - Σ P dP) of one tile in `buffer`, "slab line key"; add to the gradient of the values."""
    seen = panel.problem.keys_seen(rows)
    d_probabilities = carve(buffer, tuple(probabilities.shape))
    d_probabilities.baddbmm_(grad, span(panel.value, seen).mT, beta=0)
    if (kept := panel.kept(rows)) is None:
        add_product(sums.value[..., seen], grad.mT, probabilities)
    else:
        add_product(sums.value[..., seen], grad.mT, probabilities * kept)
        d_probabilities.mul_(kept)
    # By torch's own derivative of the softmax, which reads the tile once and adds in float32.
    return torch._softmax_backward_data(
        d_probabilities, probabilities, -1, probabilities.dtype, grad_input=d_probabilities
    )


def add_product(total: Tensor, left: Tensor, right: Tensor, scale: float = 1.0) -> None:
    """Add scale · left · right to the total, which has the type of the sums for any type of the factors."""
    # Into a part of a tensor, torch adds the products of a batch one by one; a batched product and a sum take less.
    if left.dtype == total.dtype and (len(total) == 1 or total.is_contiguous()):
        total.baddbmm_(left, right, alpha=scale)
    else:
        total.add_(torch.bmm(left, right), alpha=scale)


def hand_out(panel: Panel, sums: Sums, gradients: Gradients) -> None:
    """Write a panel's sums into the gradients of the whole problem."""
    p, batch, heads, kv_heads = panel.problem, panel.batch, panel.heads, panel.kv_heads
    d_queries = sums.queries.view(panel.num_items, panel.num_heads, p.query, -1, p.head_dim)
    d_keys = sums.keys.view(panel.num_items, -1, len(p.keys), p.head_dim, p.key)
    for i, (query, d_query, d_key) in enumerate(zip(p.queries, gradients.queries, gradients.keys, strict=True)):
        of_term = d_queries[..., i, :]
        if panel.weights is None:
            d_query[batch, heads] = of_term * panel.scale
        else:
            assert gradients.weights is not None
            gradients.weights[batch, heads, i] = (of_term.to(p.dtype) * query[batch, heads]).sum((-2, -1))
            d_query[batch, heads] = (of_term * panel.weights[i]).to(d_query.dtype)
        d_key[batch, kv_heads] = d_keys[..., i, :, :].mT.to(d_key.dtype)
    by_item = sums.value.view(panel.num_items, -1, p.value_dim, p.key).mT
    gradients.value[batch, kv_heads] = by_item.to(gradients.value.dtype)
