"""One layer over kept scores: what the running sum and the stored products have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.kept_scores.buffers import KeptBuffers
from addnorm.kernels.grouped_attention.packed import Layout
from addnorm.kernels.grouped_attention.panel import Panel
from addnorm.kernels.grouped_attention.passes import Gradients, Sums, differentiate_softmax, hand_out
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings

Token = tuple[int, float]
"""Number of a backward pass, and the factor with which the layer that it comes from held the scores."""


@dataclass(frozen=True)
class Needed:
    """The gradients that autograd asks a layer for, besides those of queries, keys and values."""

    weights: bool
    bias: bool
    earlier: bool
    """True if an earlier layer is differentiated after this one."""


@dataclass(frozen=True, kw_only=True)
class KeptLayer(ABC):
    """One layer's problem without its tensors, and where its scores are kept."""

    buffers: KeptBuffers[Any]
    number: int
    """Of the forward pass."""
    layout: Layout
    settings: ProblemSettings
    """Of the terms of all layers so far, each with weight 1."""
    index: int
    """The layer, counted from 0."""

    @abstractmethod
    def attend(self, summed: AttentionProblem, weights: Tensor | None) -> tuple[Tensor, ...]:
        """Keep the last term's scores and compute the attended values.

        Args:
            summed: the terms of all layers so far.
            weights: of these terms; None where they are numbers that the layer has.

        Returns:
            The attended values, and what else the backward pass needs of the forward pass.
        """

    @abstractmethod
    def differentiate(
        self,
        summed: AttentionProblem,
        weights: Tensor | None,
        forward: Sequence[Tensor],
        grad: Tensor | None,
        token: Token | None,
        needed: Needed,
    ) -> tuple[Gradients, Token]:
        """Compute the gradients of sum(grad * attended values) and of the layers above.

        Args:
            summed: the terms of all layers so far.
            weights: of these terms; None where they are numbers that the layer has.
            forward: what `attend` returned, if it returned more than the attended values.
            grad: of the attended values; None if nothing depends on them.
            token: of the layer above; None if this layer is the first that is differentiated.
            needed: the gradients that are asked for.

        Returns:
            The gradients, and the token for the layer below.

        Raises:
            InputError: the layer above was not the last one that this backward pass visited.
        """


def new_gradients(own: AttentionProblem, weights: Tensor | None, *, bias_needed: bool) -> Gradients:
    """Gradients of a layer's own term, of which each tile writes or adds a part.

    Args:
        own: the problem of the layer's own term.
        weights: zeros of the shape that the gradient of the weights has; None unless needed.
        bias_needed: True to differentiate the bias.
    """
    return Gradients(
        queries=(torch.empty_like(own.queries[0]),),
        keys=(torch.empty_like(own.keys[0]),),
        value=torch.empty_like(own.value),
        weights=weights,
        bias=torch.zeros_like(own.bias, dtype=own.dtype) if own.bias is not None and bias_needed else None,
    )


def one_tile(layer: KeptLayer, problem: AttentionProblem, *count: int) -> Tensor:
    """Buffers for the scores of one tile, not initialised."""
    tile = layer.layout.tile
    return problem.value.new_empty(*count, tile.slabs * problem.group * tile.rows * tile.keys, dtype=problem.dtype)


class LayerBackward(ABC):
    """The backward pass of one layer, tile by tile; what is kept is read and written by the scheme's own methods."""

    def __init__(self, layer: KeptLayer, problem: AttentionProblem, grad: Tensor | None) -> None:
        self.problem, self.grad = problem, grad
        self.buffers = one_tile(layer, problem, 2)

    def differentiate_panel(self, panel: Panel, tiles: Sequence[tuple[slice, int]], gradients: Gradients) -> None:
        """Add a panel's tiles to the gradients."""
        p, sums, share = self.problem, Sums(panel), None
        self.enter(panel)
        if self.grad is not None:
            share = (self.grad[panel.batch, panel.heads] / (1 - p.dropout)).to(p.dtype)
            share = share.reshape(len(panel.value), p.group, p.query, p.value_dim)
        for rows, start in tiles:
            d_scores = None
            if share is not None:
                probabilities = self.probabilities(panel, rows, start)
                lines = panel.lines(share, rows)
                d_scores = differentiate_softmax(panel, rows, probabilities, lines, self.buffers[1], sums)
                if gradients.weights is not None:
                    self.add_weights_gradient(panel, rows, start, d_scores, gradients.weights)
                if gradients.bias is not None:
                    panel.add_bias_gradient(gradients.bias, d_scores, rows)
            # Last, because it may overwrite what the lines above read: the kept scores, and d_scores.
            sums.add_scores(rows, self.pass_on(panel, rows, start, d_scores), panel.scale)
            self.leave(panel, rows, start)
        hand_out(panel, sums, gradients)

    @abstractmethod
    def enter(self, panel: Panel) -> None:
        """Prepare what all tiles of a panel share."""

    @abstractmethod
    def probabilities(self, panel: Panel, rows: slice, start: int) -> Float[Tensor, "slab line key"]:
        """This layer's probabilities at one tile, in the first buffer."""

    @abstractmethod
    def add_weights_gradient(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"], total: Tensor
    ) -> None:
        """Add one tile's part to the gradient of the weights."""

    @abstractmethod
    def pass_on(
        self, panel: Panel, rows: slice, start: int, d_scores: Float[Tensor, "slab line key"] | None
    ) -> Float[Tensor, "slab line key"]:
        """Keep one tile's gradient for the layers below; return that of the own product, with all layers above.

        Args:
            d_scores: this layer's own gradient, in the second buffer; None if nothing depends on its attended values.
        """

    @abstractmethod
    def leave(self, panel: Panel, rows: slice, start: int) -> None:
        """Take the own product out of one tile, if the scheme needs that."""
