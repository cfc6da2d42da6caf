"""The forward and the backward pass of one layer over the running sum: tile by tile on a CPU, in kernels on a GPU.

Formulas: the package's docstring.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.counting import at_once, count_tiles
from addnorm.kernels.grouped_attention.packed import Layout, on_device, own_term, tile_of_flat
from addnorm.kernels.grouped_attention.panel import Panel, carve
from addnorm.kernels.grouped_attention.passes import (
    Gradients,
    Sums,
    differentiate_softmax,
    hand_out,
    write_attended,
)
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings
from addnorm.kernels.grouped_attention.reversible.buffers import GradientSum, ScoreBuffers

SCALES = (1e-3, 1e3)
"""Weights, as multiples of the first layer's, for which the sum is kept scaled; for others, as for 0, it is the first layer's
and each layer multiplies a copy."""


@dataclass(frozen=True, kw_only=True)
class SummedLayer:
    """One layer's problem without its tensors, and where its scores are summed."""

    buffers: ScoreBuffers
    number: int
    """Of the forward pass."""
    layout: Layout
    settings: ProblemSettings
    """Of the terms of all layers so far, each with weight 1."""
    weights: tuple[float, ...]
    """Weight of the sum at every layer so far."""

    @property
    def index(self) -> int:
        """The layer, counted from 0."""
        return len(self.weights) - 1

    @property
    def weight(self) -> float:
        """The sum's weight at this layer."""
        return self.weights[-1]

    def scale(self, index: int) -> float:
        """The positive factor with which the buffer holds the sum for a layer: its weight where that can be."""
        first = abs(self.weights[0]) or 1.0
        own = abs(self.weights[index])
        return own if SCALES[0] <= own / first <= SCALES[1] else first

    def bring(self, summed: AttentionProblem, layers: int) -> Tensor:
        """The flat buffer once it holds the sum of the first layers, computed again if it holds anything else.

        The caller has the buffers' lock.
        """
        total = self.buffers.total(self.layout.entries, summed)
        if self.buffers.holds != (self.number, layers):
            self.buffers.holds = None
            if layers and on_device(summed):
                from addnorm.kernels.grouped_attention.triton.running_passes import sum_on_device

                first = replace(summed, queries=summed.queries[:layers], keys=summed.keys[:layers])
                sum_on_device(first, total, alpha=self.scale(layers - 1))
            elif layers and not at_once(summed):
                first = replace(summed, queries=summed.queries[:layers], keys=summed.keys[:layers])
                for panel, tiles in self.layout.panels(first):
                    for rows, start in tiles:
                        scores = tile_of_flat(total, start, panel, rows)
                        panel.mask(panel.add_products(scores, rows, beta=0.0, alpha=self.scale(layers - 1)), rows)
            self.buffers.holds = (self.number, layers)
        return total


def attend_layer(layer: SummedLayer, summed: AttentionProblem) -> tuple[Tensor, Tensor | None]:
    """Add the last term to the sum and compute the attended values.

    Args:
        layer: where the sum is.
        summed: the terms of all layers so far.

    Returns:
        The attended values, and the log-sum-exp of each row where the backward pass needs it: on a GPU.
    """
    p, index, tile, log_sum = summed, layer.index, layer.layout.tile, None
    out = p.value.new_empty(p.batch, p.query, p.heads, p.value_dim).transpose(1, 2)
    with layer.buffers.lock:
        recomputed = layer.buffers.holds == (layer.number, index + 1)  # by activation checkpointing
        total = layer.bring(p, index + 1 if recomputed else index)
        layer.buffers.holds = None
        if at_once(p):
            count_tiles(p, tile, width=p.head_dim + p.value_dim)
        elif on_device(p):
            from addnorm.kernels.grouped_attention.triton.running_passes import attend_on_sum

            out, log_sum = attend_on_sum(
                own_term(p),
                total,
                alpha=layer.scale(index),
                beta=layer.scale(index) / layer.scale(index - 1) if index else 0.0,
                ratio=layer.weight / layer.scale(index),
                adds=not recomputed,
                first=not index,
            )
        else:
            buffer = p.value.new_empty(tile.slabs * p.group * tile.rows * tile.keys, dtype=p.dtype)
            beta = layer.scale(index) / layer.scale(index - 1) if index else 0.0
            for panel, tiles in layer.layout.panels(own_term(p)):
                for rows, start in tiles:
                    scores = tile_of_flat(total, start, panel, rows)
                    if not recomputed:
                        panel.add_products(scores, rows, beta=beta, alpha=layer.scale(index))
                        if not index:
                            panel.mask(scores, rows)
                    probabilities = _probabilities(layer, panel, scores, buffer, rows)
                    write_attended(panel, rows, probabilities, out)
        layer.buffers.holds = (layer.number, index + 1)
    return out, log_sum


def differentiate_layer(
    layer: SummedLayer,
    summed: AttentionProblem,
    forward: tuple[Tensor, Tensor] | None,
    grad: Tensor | None,
    under_way: tuple[int, float] | None,
    *,
    weight_needed: bool,
    bias_needed: bool,
    last: bool,
) -> tuple[Gradients, int]:
    """Compute the gradients of sum(grad * attended values) and of the layers above; take the last term out of the sum.

    Args:
        layer: where the sum is.
        summed: the terms of all layers so far.
        forward: on a GPU, what `attend_layer` returned; None elsewhere.
        grad: of the attended values; None if nothing depends on them.
        under_way: number of the backward pass, and the scale of the layer above, from which it comes; None if this layer is the
            first that is differentiated.
        weight_needed: True to differentiate the weight of the sum.
        bias_needed: True to differentiate the bias.
        last: True if no earlier layer is differentiated.

    Returns:
        The gradients, with that of the sum's weight as a scalar, and the number of the backward pass.

    Raises:
        InputError: the layer above was not the last one that this backward pass visited.
    """
    p, own, index = summed, own_term(summed), layer.index
    buffers, layout = layer.buffers, layer.layout
    with buffers.lock:
        if under_way is None:
            gradient = buffers.begin_gradient(layout.entries, p, layer=index)
        else:
            gradient = buffers.gradient(under_way[0], layer=index)
        total = layer.bring(p, index + 1)
        buffers.holds = None
        gradient.layer = -1  # an exception in between leaves a gradient that no layer accepts
        above = None if under_way is None else under_way[1] / layer.scale(index)
        if forward is not None:
            found = _differentiate_on_device(
                layer, own, forward, grad, total, gradient, above, last, weight_needed, bias_needed
            )
        else:
            found = Gradients(
                queries=(torch.empty_like(own.queries[0]),),
                keys=(torch.empty_like(own.keys[0]),),
                value=torch.empty_like(p.value),
                weights=p.value.new_zeros((), dtype=torch.float64) if weight_needed else None,
                bias=torch.zeros_like(p.bias, dtype=p.dtype) if p.bias is not None and bias_needed else None,
            )
            if at_once(p):
                count_tiles(p, layout.tile, width=(2 if last else 3) * p.head_dim + 2 * p.value_dim)
            else:
                work = _Work(layer, p, grad, above, last=last)
                for panel, tiles in layout.panels(replace(own, weights=layer.scale(index))):
                    work.differentiate_panel(panel, tiles, total, gradient.values, found)
        if not last:
            buffers.holds = (layer.number, index)
        gradient.layer = index - 1
        if last:
            buffers.end_gradient(gradient)
    return found, gradient.number


def _differentiate_on_device(
    layer: SummedLayer,
    own: AttentionProblem,
    forward: tuple[Tensor, Tensor],
    grad: Tensor | None,
    total: Tensor,
    gradient: GradientSum,
    above: float | None,
    last: bool,
    weight_needed: bool,
    bias_needed: bool,
) -> Gradients:
    from addnorm.kernels.grouped_attention.triton.running_passes import differentiate_on_sum

    index = layer.index
    scale = layer.scale(index)
    found = differentiate_on_sum(
        own,
        total,
        gradient.values,
        *forward,
        grad,
        alpha=scale,
        factor=layer.weight / scale,
        above=above,
        below=None if last else layer.scale(index - 1) / scale,
        ratio=layer.weight / scale,
        weight_needed=weight_needed,
        bias_needed=bias_needed,
    )
    return found if found.weights is None else replace(found, weights=found.weights / scale)


class _Work:
    """The backward pass of one layer: its settings, and its buffers for one tile."""

    def __init__(
        self, layer: SummedLayer, problem: AttentionProblem, grad: Tensor | None, above: float | None, *, last: bool
    ) -> None:
        self.layer, self.problem, self.grad, self.last = layer, problem, grad, last
        self.above = above
        """Scale of the layer above, as a multiple of this one's; None if there is none in this backward pass."""
        p, tile = problem, layer.layout.tile
        self.buffers = p.value.new_empty(2, tile.slabs * p.group * tile.rows * tile.keys, dtype=p.dtype)

    def differentiate_panel(
        self, panel: Panel, tiles: list[tuple[slice, int]], total: Tensor, gradient: Tensor, found: Gradients
    ) -> None:
        """Add a panel's tiles to the gradients."""
        p, layer, sums, share = self.problem, self.layer, Sums(panel), None
        if self.grad is not None:
            share = (self.grad[panel.batch, panel.heads] / (1 - p.dropout)).to(p.dtype)
            share = share.reshape(len(panel.value), p.group, p.query, p.value_dim)
        for rows, start in tiles:
            scores = tile_of_flat(total, start, panel, rows)
            d_sum = tile_of_flat(gradient, start, panel, rows)
            if share is not None:
                probabilities = _probabilities(layer, panel, scores, self.buffers[0], rows)
                lines = panel.lines(share, rows)
                d_scores = differentiate_softmax(panel, rows, probabilities, lines, self.buffers[1], sums)
                if found.weights is not None:
                    # Hidden scores are -inf, and their gradient 0.
                    visible = torch.where(d_scores == 0, 0.0, scores)
                    product = torch.linalg.vecdot(d_scores, visible).sum(dtype=torch.float64)
                    found.weights.add_(product, alpha=1 / layer.scale(layer.index))
                if found.bias is not None:
                    panel.add_bias_gradient(found.bias, d_scores, rows)
                d_sum = self._add(d_sum, d_scores)
            elif self.above is None:
                d_sum.zero_()
            else:
                d_sum.mul_(self.above)
            sums.add_scores(rows, d_sum, panel.scale)
            if not self.last:
                below = layer.scale(layer.index - 1) / layer.scale(layer.index)
                panel.add_products(scores, rows, beta=below, alpha=-below)
        hand_out(panel, sums, found)

    def _add(self, d_sum: Tensor, d_scores: Tensor) -> Float[Tensor, "slab line key"]:
        """The gradient of the sum with this layer's part, kept in its buffer if an earlier layer needs it."""
        factor = self.layer.weight / self.layer.scale(self.layer.index)
        if factor != 1.0:
            d_scores.mul_(factor)
        if self.above is not None:
            return torch.add(d_scores, d_sum, alpha=self.above, out=d_scores if self.last else d_sum)
        return d_scores if self.last else d_sum.copy_(d_scores)


def _probabilities(layer: SummedLayer, panel: Panel, scores: Tensor, buffer: Tensor, rows: slice) -> Tensor:
    """The softmax of one tile of the sum, with this layer's weight and bias, computed in a buffer."""
    own = carve(buffer, panel.tile_shape(rows))
    bias = panel.problem.bias
    if layer.weight != layer.scale(layer.index):
        torch.mul(scores, layer.weight / layer.scale(layer.index), out=own).masked_fill_(
            scores == float("-inf"), float("-inf")
        )
        scores = own
    if bias is not None:
        by_head = panel.heads_first(own)
        torch.add(panel.heads_first(scores), panel.bias(bias, rows), out=by_head)
        scores = own
    return panel.normalise(scores, own)
