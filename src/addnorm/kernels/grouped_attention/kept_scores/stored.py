"""One layer with the stored products of all layers, tile by tile. Formulas: the package's docstring."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.counting import at_once, count_tiles
from addnorm.kernels.grouped_attention.kept_scores.buffers import ProductBuffers, Products, SlotGradients
from addnorm.kernels.grouped_attention.kept_scores.layer import (
    KeptLayer,
    LayerBackward,
    Needed,
    Token,
    new_gradients,
    one_tile,
)
from addnorm.kernels.grouped_attention.packed import own_term, tile_of_flat
from addnorm.kernels.grouped_attention.panel import Panel, carve
from addnorm.kernels.grouped_attention.passes import Gradients, write_attended
from addnorm.kernels.grouped_attention.problem import AttentionProblem

Weights = Float[Tensor, "#batch #heads term"]
Slots = Float[Tensor, "layer entry"]
_PARTS = 8
"""Most parts of a head's scores in a tile."""


@dataclass(frozen=True, kw_only=True)
class StoredLayer(KeptLayer):
    """One layer's problem without its tensors, and where its product is stored."""

    buffers: ProductBuffers
    depth: int
    """Number of layers of the model, and of slots."""

    def slots(self, products: Products) -> Slots:
        return products.slots(self.depth, self.layout.entries)

    def products(self, summed: AttentionProblem, layers: int) -> Products:
        """A buffer with the products of the first layers, made again if no buffer has them. The caller has the lock."""
        held = self.buffers.find(self.number, layers)
        if held is None:
            held = self.buffers.writable(self.depth * self.layout.entries, summed)
            self.make(summed, held, layers)
        return held

    def make(self, summed: AttentionProblem, products: Products, layers: int) -> None:
        """Fill the slots of the first layers, but for those that have their products."""
        # A backward pass turns slots into gradients from the last layer down, so what it leaves of the products are the first
        # `products.layers` slots. The slots above may be gradients that are still needed: they are not touched.
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

    def attend(self, summed: AttentionProblem, weights: Weights | None) -> tuple[Tensor, ...]:
        assert weights is not None
        p, index, tile = summed, self.index, self.layout.tile
        out = p.value.new_empty(p.batch, p.query, p.heads, p.value_dim).transpose(1, 2)
        with self.buffers.lock:
            recomputed = self.buffers.find(self.number, index + 1)  # by activation checkpointing
            products = self.products(p, index) if recomputed is None else recomputed
            if at_once(p):
                count_tiles(p, tile, width=p.head_dim + _sum_width(index + 1) + p.value_dim)
            else:
                if recomputed is None:
                    products.number = 0
                slots = self.slots(products)[: index + 1]
                buffer = one_tile(self, p)
                for panel, tiles in self.layout.panels(own_term(p)):
                    shares = _of_heads(panel, weights)
                    for rows, start in tiles:
                        if recomputed is None:
                            panel.add_products(tile_of_flat(slots[index], start, panel, rows), rows, beta=0.0)
                        write_attended(panel, rows, _probabilities(panel, slots, start, shares, buffer, rows), out)
            # A layer that activation checkpointing computes again found its slot in `recomputed`, with those of later layers,
            # which the backward pass is about to read: the number of layers must not fall back to this one's.
            if recomputed is None:
                products.number, products.layers = self.number, index + 1
        return (out,)

    def differentiate(
        self,
        summed: AttentionProblem,
        weights: Weights | None,
        forward: Sequence[Tensor],
        grad: Tensor | None,
        token: Token | None,
        needed: Needed,
    ) -> tuple[Gradients, Token]:
        assert weights is not None
        p, own, index, buffers = summed, own_term(summed), self.index, self.buffers
        with buffers.lock:
            if token is None:
                begun = buffers.begin(self.depth * self.layout.entries, p, layer=index)
            else:
                begun = buffers.under_way(token[0], layer=index)
            if not begun.products.has(self.number, index + 1):
                # Another forward pass wrote here. The slots above this layer keep the gradients of this backward pass.
                self.make(p, begun.products, index + 1)
            begun.layer = -1
            begun.products.layers = index
            begun.weights[index] = weights
            shape = (p.batch, p.heads, index + 1)
            zeros = p.value.new_zeros(shape, dtype=torch.float64) if needed.weights else None
            gradients = new_gradients(own, zeros, bias_needed=needed.bias)
            if at_once(p):
                terms, above = index + 1, begun.top + 1 - index
                summing = _sum_width(above) if grad is None else _sum_width(terms) + _sum_width(above)
                weighing = terms if needed.weights and grad is not None else 0
                values = 0 if grad is None else 2 * p.value_dim
                count_tiles(p, self.layout.tile, width=2 * p.head_dim + values + summing + weighing)
            else:
                work = _SlotsBackward(self, p, grad, begun)
                for panel, tiles in self.layout.panels(replace(own, weights=1.0)):
                    work.differentiate_panel(panel, tiles, gradients)
            begun.layer = index - 1
            if not needed.earlier:
                buffers.end(begun)
        if gradients.weights is not None:
            gradients = replace(gradients, weights=gradients.weights.sum_to_size(weights.shape))
        return gradients, (begun.number, 1.0)


class _SlotsBackward(LayerBackward):
    """The backward pass of one layer over the slots of all layers."""

    def __init__(
        self, layer: StoredLayer, problem: AttentionProblem, grad: Tensor | None, begun: SlotGradients
    ) -> None:
        super().__init__(layer, problem, grad)
        self.index, self.weights = layer.index, begun.weights
        slots = layer.slots(begun.products)
        self.terms = slots[: layer.index + 1]
        """Products of the layers up to this one."""
        self.above = slots[layer.index : begun.top + 1]
        """The own slot, and gradients of the layers above."""

    def enter(self, panel: Panel) -> None:
        self.shares = _of_heads(panel, self.weights[self.index])
        layers = range(self.index, self.index + len(self.above))
        self.passed_on = torch.cat(
            [_of_heads(panel, self.weights[layer])[..., self.index, None] for layer in layers], -1
        )

    def probabilities(self, panel: Panel, rows: slice, start: int) -> Float[Tensor, "slab line key"]:
        return _probabilities(panel, self.terms, start, self.shares, self.buffers[0], rows)

    def add_weights_gradient(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"], total: Tensor
    ) -> None:
        d_shares = _sums_of_products(self.terms, start, d_scores, len(self.shares))
        total[panel.batch, panel.heads] += d_shares.view(panel.num_items, panel.num_heads, -1)

    def pass_on(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"] | None
    ) -> Float[Tensor, "slab line key"]:
        slot = tile_of_flat(self.above[0], start, panel, rows)
        if d_scores is None:
            slot.zero_()
        else:
            slot.copy_(d_scores)
        return _combined(panel, self.above, start, self.passed_on, self.buffers[1], rows)

    def leave(self, panel: Panel, rows: slice, start: int) -> None:
        pass


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
    products = torch.bmm(by_part, _stacked(terms, start, (parts, by_part.shape[-1])).mT)
    return products.view(heads, -1, len(terms)).sum(1, dtype=torch.float64)


def _stacked(terms: Slots, start: int, shape: Sequence[int]) -> Float[Tensor, "head term place"]:
    """View one tile of several slots, with the entries of every head in a row."""
    heads, entries = shape
    return terms[:, start : start + heads * entries].view(-1, heads, entries).transpose(0, 1)


def _of_heads(panel: Panel, weights: Weights) -> Float[Tensor, "head 1 term"]:
    """The weights of a panel's heads, item by item, in the type of the sums."""
    shares = panel.share(weights).to(panel.problem.dtype)
    return shares.expand(panel.num_items, panel.num_heads, -1).reshape(-1, 1, shares.shape[-1])
