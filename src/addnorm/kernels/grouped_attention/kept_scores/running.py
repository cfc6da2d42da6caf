"""One layer over the running sum: tile by tile on a CPU, in kernels on a GPU. Formulas: the package's docstring."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.counting import at_once, count_tiles
from addnorm.kernels.grouped_attention.kept_scores.buffers import GradientSum, ScoreBuffers
from addnorm.kernels.grouped_attention.kept_scores.layer import (
    KeptLayer,
    LayerBackward,
    Needed,
    Token,
    new_gradients,
    one_tile,
)
from addnorm.kernels.grouped_attention.packed import on_device, own_term, tile_of_flat
from addnorm.kernels.grouped_attention.panel import Panel, carve
from addnorm.kernels.grouped_attention.passes import Gradients, write_attended
from addnorm.kernels.grouped_attention.problem import AttentionProblem

SCALES = (1e-3, 1e3)
"""Weights, as multiples of the first layer's, for which the sum is kept scaled; for others, as for 0, it is the first layer's
and each layer multiplies a copy."""


@dataclass(frozen=True, kw_only=True)
class SummedLayer(KeptLayer):
    """One layer's problem without its tensors, and where its scores are summed."""

    buffers: ScoreBuffers
    weights: tuple[float, ...]
    """Weight of the sum at every layer so far; 1 for weights that a GPU alone knows (`ratio_on_device`)."""
    learned: bool = False
    """True if a tensor holds the layer's weight."""

    def scale(self, index: int) -> float:
        """The positive factor with which the buffer holds the sum for a layer: its weight where that can be."""
        # Dividing by a weight near zero, or going from 1e-8 to 1e3, would leave nothing of the earlier terms.
        # The weights are those of the forward pass, kept as numbers: an optimizer may change the parameter before a second
        # backward pass, and undoing with other factors than were applied would leave a sum that no layer ever had.
        first = abs(self.weights[0]) or 1.0
        own = abs(self.weights[index])
        return own if SCALES[0] <= own / first <= SCALES[1] else first

    @property
    def ratio(self) -> float:
        """This layer's scores as a multiple of what the buffer holds."""
        return self.weights[-1] / self.scale(self.index)

    def ratio_on_device(self, weights: Tensor | None) -> float | Tensor | None:
        """The ratio for the kernels; None for 1.

        A learned weight stays on the device: the host would have to wait for it in every layer. The buffer then holds the sum
        with factor 1, for all layers.
        """
        if self.learned:
            return weights
        return None if self.ratio == 1.0 else self.ratio

    @property
    def beta(self) -> float:
        """Factor of the sum so far where this layer's product joins."""
        return self.scale(self.index) / self.scale(self.index - 1) if self.index else 0.0

    def bring(self, summed: AttentionProblem, layers: int) -> Tensor:
        """The flat buffer once it holds the sum of the first layers, computed again if it holds anything else.

        The caller has the buffers' lock.
        """
        # Another forward pass may have summed here since (two batches before one backward pass, an evaluation in between), or
        # the backward pass may have undone layers. The sum is then made again from the saved queries and keys: slower, never
        # wrong. `holds` is None while the buffer is written, so that an exception cannot leave half a sum that the next pass
        # would believe.
        total = self.buffers.total(self.layout.entries, summed)
        if self.buffers.holds != (self.number, layers):
            self.buffers.holds = None
            if layers and not at_once(summed):
                first = replace(summed, queries=summed.queries[:layers], keys=summed.keys[:layers])
                self._sum(first, total, alpha=self.scale(layers - 1))
            self.buffers.holds = (self.number, layers)
        return total

    def _sum(self, problem: AttentionProblem, total: Tensor, *, alpha: float) -> None:
        """Write the masked sum of all the problem's terms, times alpha."""
        if on_device(problem):
            from addnorm.kernels.grouped_attention.triton.running_passes import sum_on_device

            sum_on_device(problem, total, alpha=alpha)
            return
        for panel, tiles in self.layout.panels(problem):
            for rows, start in tiles:
                scores = tile_of_flat(total, start, panel, rows)
                panel.mask(panel.add_products(scores, rows, beta=0.0, alpha=alpha), rows)

    def attend(self, summed: AttentionProblem, weights: Tensor | None) -> tuple[Tensor, ...]:
        # The lock is held for the whole pass over the tiles: two threads of DataParallel or of a test share the buffers, and
        # `holds` says whose sum is there only between passes.
        p, index = summed, self.index
        with self.buffers.lock:
            recomputed = self.buffers.holds == (self.number, index + 1)  # by activation checkpointing
            total = self.bring(p, index + 1 if recomputed else index)
            self.buffers.holds = None
            forward: tuple[Tensor, ...]
            if on_device(p):
                forward = self._attend_on_device(own_term(p), total, weights, adds=not recomputed)
            else:
                forward = (self._attend(p, total, adds=not recomputed),)
            self.buffers.holds = (self.number, index + 1)
        return forward

    def _attend(self, summed: AttentionProblem, total: Tensor, *, adds: bool) -> Tensor:
        p = summed
        out = p.value.new_empty(p.batch, p.query, p.heads, p.value_dim).transpose(1, 2)
        if at_once(p):
            count_tiles(p, self.layout.tile, width=p.head_dim + p.value_dim)
            return out
        buffer = one_tile(self, p)
        for panel, tiles in self.layout.panels(own_term(p)):
            for rows, start in tiles:
                scores = tile_of_flat(total, start, panel, rows)
                if adds:
                    panel.add_products(scores, rows, beta=self.beta, alpha=self.scale(self.index))
                    if not self.index:  # the mask stays in the sum for all layers to come
                        panel.mask(scores, rows)
                write_attended(panel, rows, _probabilities(self, panel, scores, buffer, rows), out)
        return out

    def _attend_on_device(
        self, own: AttentionProblem, total: Tensor, weights: Tensor | None, *, adds: bool
    ) -> tuple[Tensor, Tensor]:
        from addnorm.kernels.grouped_attention.triton.running_passes import attend_on_sum

        return attend_on_sum(
            own,
            total,
            alpha=self.scale(self.index),
            beta=self.beta,
            ratio=self.ratio_on_device(weights),
            adds=adds,
            first=not self.index,
        )

    def differentiate(
        self,
        summed: AttentionProblem,
        weights: Tensor | None,
        forward: Sequence[Tensor],
        grad: Tensor | None,
        token: Token | None,
        needed: Needed,
    ) -> tuple[Gradients, Token]:
        p, own, index, buffers = summed, own_term(summed), self.index, self.buffers
        with buffers.lock:
            if token is None:
                begun = buffers.begin(self.layout.entries, p, layer=index)
            else:
                begun = buffers.under_way(token[0], layer=index)
            total = self.bring(p, index + 1)
            buffers.holds = None
            begun.layer = -1
            # The gradient that is kept belongs to the sum as the layer above held it. This layer holds the sum with another
            # factor, by which the gradient is divided: d(sum) / d(a sum) = 1 / a.
            above = None if token is None else token[1] / self.scale(index)
            if forward:
                gradients = self._differentiate_on_device(own, weights, forward, grad, total, begun, above, needed)
            else:
                zeros = p.value.new_zeros((), dtype=torch.float64) if needed.weights else None
                gradients = new_gradients(own, zeros, bias_needed=needed.bias)
                if at_once(p):
                    factors = 3 if needed.earlier else 2
                    count_tiles(p, self.layout.tile, width=factors * p.head_dim + 2 * p.value_dim)
                else:
                    work = _SumBackward(self, p, grad, total, begun, above, undo=needed.earlier)
                    for panel, tiles in self.layout.panels(replace(own, weights=self.scale(index))):
                        work.differentiate_panel(panel, tiles, gradients)
            begun.layer = index - 1
            if needed.earlier:
                # The pass subtracted this layer's product from each tile after it was used (`leave`), so the buffer holds the
                # sum of the layers below: the next layer of the backward pass finds its own scores without making them.
                buffers.holds = (self.number, index)
            else:
                buffers.end(begun)
        return gradients, (begun.number, self.scale(index))

    def _differentiate_on_device(
        self,
        own: AttentionProblem,
        weights: Tensor | None,
        forward: Sequence[Tensor],
        grad: Tensor | None,
        total: Tensor,
        begun: GradientSum,
        above: float | None,
        needed: Needed,
    ) -> Gradients:
        from addnorm.kernels.grouped_attention.triton.running_passes import differentiate_on_sum

        attended, log_sum = forward
        scale = self.scale(self.index)
        gradients = differentiate_on_sum(
            own,
            total,
            begun.values,
            attended,
            log_sum,
            grad,
            alpha=scale,
            above=above,
            below=1 / self.beta if needed.earlier else None,
            ratio=self.ratio_on_device(weights),
            weight_needed=needed.weights,
            bias_needed=needed.bias,
        )
        return gradients if gradients.weights is None else replace(gradients, weights=gradients.weights / scale)


class _SumBackward(LayerBackward):
    """The backward pass of one layer over the running sum and its gradient."""

    def __init__(
        self,
        layer: SummedLayer,
        problem: AttentionProblem,
        grad: Tensor | None,
        total: Tensor,
        begun: GradientSum,
        above: float | None,
        *,
        undo: bool,
    ) -> None:
        super().__init__(layer, problem, grad)
        self.layer, self.total, self.gradient, self.undo = layer, total, begun.values, undo
        self.above = above
        """Scale of the layer above, as a multiple of this one's; None if there is none in this backward pass."""

    def enter(self, panel: Panel) -> None:
        pass

    def probabilities(self, panel: Panel, rows: slice, start: int) -> Float[Tensor, "slab line key"]:
        scores = tile_of_flat(self.total, start, panel, rows)
        return _probabilities(self.layer, panel, scores, self.buffers[0], rows)

    def add_weights_gradient(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"], total: Tensor
    ) -> None:
        # Hidden scores are -inf, and their gradient 0: their product would be nan.
        visible = torch.where(d_scores == 0, 0.0, tile_of_flat(self.total, start, panel, rows))
        product = torch.linalg.vecdot(d_scores, visible).sum(dtype=torch.float64)
        total.add_(product, alpha=1 / self.layer.scale(self.layer.index))

    def pass_on(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"] | None
    ) -> Float[Tensor, "slab line key"]:
        # d_sum collects the gradients of the scores of this layer and of all above it: each of them has this layer's product
        # as a summand. It is what the product's queries and keys are differentiated by.
        d_sum = tile_of_flat(self.gradient, start, panel, rows)
        if d_scores is None:
            return d_sum.zero_() if self.above is None else d_sum.mul_(self.above)
        if self.layer.ratio != 1.0:
            d_scores.mul_(self.layer.ratio)
        if self.above is not None:
            return torch.add(d_scores, d_sum, alpha=self.above, out=d_sum if self.undo else d_scores)
        return d_sum.copy_(d_scores) if self.undo else d_scores  # below the last layer nobody reads it

    def leave(self, panel: Panel, rows: slice, start: int) -> None:
        # sum_below = (sum - alpha q k) / beta, with alpha / beta as one factor. Hidden scores are minus infinity and stay so.
        # Each undoing adds one rounding of the sum's size to what lies below; `SCALES` keeps beta from making it larger.
        if self.undo:
            below = 1 / self.layer.beta
            panel.add_products(tile_of_flat(self.total, start, panel, rows), rows, beta=below, alpha=-below)


def _probabilities(
    layer: SummedLayer, panel: Panel, scores: Float[Tensor, "slab line key"], buffer: Tensor, rows: slice
) -> Float[Tensor, "slab line key"]:
    """The softmax of one tile of the sum, with this layer's weight and bias, computed in a buffer."""
    own = carve(buffer, panel.tile_shape(rows))
    bias = panel.problem.bias
    if layer.ratio != 1.0:
        # A ratio that is zero or negative would turn -inf into nan or +inf.
        hidden = scores == float("-inf")
        scores = torch.mul(scores, layer.ratio, out=own).masked_fill_(hidden, float("-inf"))
    if bias is not None:
        torch.add(panel.heads_first(scores), panel.bias(bias, rows), out=panel.heads_first(own))
        scores = own
    return panel.normalise(scores, own)
