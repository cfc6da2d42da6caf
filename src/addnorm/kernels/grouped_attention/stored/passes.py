"""The forward and the backward pass of one layer with stored products, tile by tile.

Formulas: the package's docstring.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.counting import at_once, count_tiles
from addnorm.kernels.grouped_attention.packed import Layout, own_term, tile_of_flat
from addnorm.kernels.grouped_attention.panel import Panel, carve
from addnorm.kernels.grouped_attention.passes import (
    Gradients,
    Sums,
    differentiate_softmax,
    hand_out,
    write_attended,
)
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings
from addnorm.kernels.grouped_attention.stored.buffers import BackwardPass, ProductBuffers, Products

Weights = Float[Tensor, "#batch #heads term"]
Slots = Float[Tensor, "layer entry"]
_PARTS = 8
"""Most parts of a head's scores in a tile."""


@dataclass(frozen=True, kw_only=True)
class StoredLayer:
    """One layer's problem without its tensors, and where its product is stored."""

    buffers: ProductBuffers
    number: int
    """Of the forward pass."""
    layout: Layout
    depth: int
    """Number of layers of the model, and of slots."""
    settings: ProblemSettings
    """Of the terms of all layers so far, each with weight 1."""
    index: int
    """The layer, counted from 0."""

    def slots(self, products: Products) -> Slots:
        return products.slots(self.depth, self.layout.entries)

    def products(self, summed: AttentionProblem, layers: int) -> Products:
        """A buffer with the products of the first layers, made again if no buffer has them. The caller has the lock."""
        found = self.buffers.find(self.number, layers)
        if found is None:
            found = self.buffers.writable(self.depth * self.layout.entries, summed)
            self.make(summed, found, layers)
        return found

    def make(self, summed: AttentionProblem, products: Products, layers: int) -> None:
        """Fill the slots of the first layers, but for those that have their products."""
        first = min(products.layers, layers) if products.number == self.number else 0
        products.number = 0  # an exception leaves no products that are half of one layer
        if not at_once(summed):
            for slot, query, key in zip(
                self.slots(products)[first:layers], summed.queries[first:layers], summed.keys[first:layers], strict=True
            ):
                for panel, tiles in self.layout.panels(replace(summed, queries=(query,), keys=(key,), weights=1.0)):
                    for rows, start in tiles:
                        panel.add_products(tile_of_flat(slot, start, panel, rows), rows, beta=0.0)
        products.number, products.layers = self.number, layers


def attend_layer(layer: StoredLayer, summed: AttentionProblem, weights: Weights) -> Tensor:
    """Store the product of the last term and compute the attended values, with the weights of all terms."""
    p, index, tile = summed, layer.index, layer.layout.tile
    out = p.value.new_empty(p.batch, p.query, p.heads, p.value_dim).transpose(1, 2)
    with layer.buffers.lock:
        recomputed = layer.buffers.find(layer.number, index + 1)  # by activation checkpointing
        products = layer.products(p, index) if recomputed is None else recomputed
        if at_once(p):
            count_tiles(p, tile, width=p.head_dim + _sum_width(index + 1) + p.value_dim)
        else:
            if recomputed is None:
                products.number = 0
            slots = layer.slots(products)[: index + 1]
            buffer = p.value.new_empty(tile.slabs * p.group * tile.rows * tile.keys, dtype=p.dtype)
            for panel, tiles in layer.layout.panels(own_term(p)):
                shares = _of_heads(panel, weights)
                for rows, start in tiles:
                    if recomputed is None:
                        panel.add_products(tile_of_flat(slots[index], start, panel, rows), rows, beta=0.0)
                    probabilities = _probabilities(panel, slots, start, shares, buffer, rows)
                    write_attended(panel, rows, probabilities, out)
        if recomputed is None:
            products.number, products.layers = layer.number, index + 1
    return out


def differentiate_layer(
    layer: StoredLayer,
    summed: AttentionProblem,
    weights: Weights,
    grad: Tensor | None,
    number: int | None,
    *,
    weights_needed: bool,
    bias_needed: bool,
    last: bool,
) -> tuple[Gradients, int]:
    """Compute the gradients of sum(grad * attended values) and of the layers above.

    Args:
        layer: where the products are.
        summed: the terms of all layers so far.
        weights: of these terms.
        grad: of the attended values; None if nothing depends on them.
        number: of the backward pass; None if this layer is the first that is differentiated.
        weights_needed: True to differentiate the weights.
        bias_needed: True to differentiate the bias.
        last: True if no earlier layer is differentiated.

    Returns:
        The gradients, with those of the weights in the shape [batch, heads, term], and the number of the backward pass.

    Raises:
        InputError: the layer above was not the last one that this backward pass visited.
    """
    p, index, buffers, layout = summed, layer.index, layer.buffers, layer.layout
    with buffers.lock:
        if number is None:
            begun = buffers.begin(layer.depth * layout.entries, p, layer=index)
        else:
            begun = buffers.under_way(number, layer=index)
        if not begun.products.has(layer.number, index + 1):
            layer.make(p, begun.products, index + 1)
        begun.layer = -1  # an exception in between leaves a pass that no layer accepts
        begun.products.layers = index
        begun.weights[index] = weights
        own = own_term(p)
        found = Gradients(
            queries=(torch.empty_like(own.queries[0]),),
            keys=(torch.empty_like(own.keys[0]),),
            value=torch.empty_like(p.value),
            weights=p.value.new_zeros(p.batch, p.heads, index + 1, dtype=torch.float64) if weights_needed else None,
            bias=torch.zeros_like(p.bias, dtype=p.dtype) if p.bias is not None and bias_needed else None,
        )
        if at_once(p):
            terms, above = index + 1, begun.top + 1 - index
            summing = _sum_width(above) if grad is None else _sum_width(terms) + _sum_width(above)
            weighing = terms if weights_needed and grad is not None else 0
            values = 0 if grad is None else 2 * p.value_dim
            count_tiles(p, layout.tile, width=2 * p.head_dim + values + summing + weighing)
        else:
            work = _Work(layer, p, begun, grad)
            for panel, tiles in layout.panels(replace(own, weights=1.0)):
                work.differentiate_panel(panel, tiles, found)
        begun.layer = index - 1
        if last:
            buffers.end(begun)
    return found, begun.number


class _Work:
    """The backward pass of one layer: its settings, and its buffers for one tile."""

    def __init__(self, layer: StoredLayer, problem: AttentionProblem, begun: BackwardPass, grad: Tensor | None) -> None:
        self.problem, self.index, self.begun, self.grad = problem, layer.index, begun, grad
        self.slots = layer.slots(begun.products)
        p, tile = problem, layer.layout.tile
        self.buffers = p.value.new_empty(2, tile.slabs * p.group * tile.rows * tile.keys, dtype=p.dtype)

    def differentiate_panel(self, panel: Panel, tiles: Sequence[tuple[slice, int]], found: Gradients) -> None:
        """Add a panel's tiles to the gradients."""
        p, index, begun, sums, share = self.problem, self.index, self.begun, Sums(panel), None
        terms = self.slots[: index + 1]
        above = self.slots[index : begun.top + 1]
        shares = _of_heads(panel, begun.weights[index])
        passed_on = torch.cat(
            [_of_heads(panel, begun.weights[layer])[..., index, None] for layer in range(index, begun.top + 1)], -1
        )
        if self.grad is not None:
            share = (self.grad[panel.batch, panel.heads] / (1 - p.dropout)).to(p.dtype)
            share = share.reshape(len(panel.value), p.group, p.query, p.value_dim)
        for rows, start in tiles:
            slot = tile_of_flat(self.slots[index], start, panel, rows)
            if share is None:
                slot.zero_()
            else:
                probabilities = _probabilities(panel, terms, start, shares, self.buffers[0], rows)
                lines = panel.lines(share, rows)
                d_scores = differentiate_softmax(panel, rows, probabilities, lines, self.buffers[1], sums)
                if found.weights is not None:
                    d_shares = _sums_of_products(terms, start, d_scores, len(shares))
                    found.weights[panel.batch, panel.heads] += d_shares.view(panel.num_items, panel.num_heads, -1)
                if found.bias is not None:
                    panel.add_bias_gradient(found.bias, d_scores, rows)
                slot.copy_(d_scores)
            d_product = _combined(panel, above, start, passed_on, self.buffers[1], rows)
            sums.add_scores(rows, d_product)
        hand_out(panel, sums, found)


def _sum_width(slots: int) -> int:
    """Width that the weighted sum of some slots has in a count of products: one slot is only scaled."""
    return slots if slots > 1 else 0


def _probabilities(
    panel: Panel, terms: Slots, start: int, shares: Float[Tensor, "head 1 term"], buffer: Tensor, rows: slice
) -> Float[Tensor, "slab line key"]:
    """The softmax of the weighted sum of one tile's products, with bias and masks, computed in a buffer."""
    scores = _combined(panel, terms, start, shares, buffer, rows)
    if panel.problem.bias is not None:
        panel.heads_first(scores).add_(panel.bias(panel.problem.bias, rows))
    return panel.normalise(panel.mask(scores, rows), scores)


def _combined(
    panel: Panel, terms: Slots, start: int, shares: Float[Tensor, "head 1 term"], buffer: Tensor, rows: slice
) -> Float[Tensor, "slab line key"]:
    """The weighted sum of several slots at one tile, computed in a buffer."""
    total = carve(buffer, panel.tile_shape(rows))
    by_head = total.view(len(shares), 1, -1)
    stacked = _stacked(terms, start, (len(shares), by_head.shape[-1]))
    if len(terms) == 1:
        torch.mul(stacked, shares, out=by_head)
    else:
        torch.bmm(shares, stacked, out=by_head)
    return total


def _sums_of_products(
    terms: Slots, start: int, d_scores: Float[Tensor, "slab line key"], heads: int
) -> Float[Tensor, "head term"]:
    """Σ dS ∘ T_i of one tile for every head and slot, in float64.

    Each head is cut into parts: a product of one row with a few long columns has a tenth of the speed of several shorter ones.
    """
    parts = heads * math.gcd(_PARTS, d_scores.shape[0] * d_scores.shape[1] // heads)
    by_part = d_scores.view(parts, 1, -1)
    found = torch.bmm(by_part, _stacked(terms, start, (parts, by_part.shape[-1])).mT)
    return found.view(heads, -1, len(terms)).sum(1, dtype=torch.float64)


def _stacked(terms: Slots, start: int, shape: Sequence[int]) -> Float[Tensor, "head term place"]:
    """View one tile of several slots, with the entries of every head in a row."""
    heads, entries = shape
    return terms[:, start : start + heads * entries].view(-1, heads, entries).transpose(0, 1)


def _of_heads(panel: Panel, weights: Weights) -> Float[Tensor, "head 1 term"]:
    """The weights of a panel's heads, item by item, in the type of the sums."""
    shares = panel.share(weights).to(panel.problem.dtype)
    return shares.expand(panel.num_items, panel.num_heads, -1).reshape(-1, 1, shares.shape[-1])
