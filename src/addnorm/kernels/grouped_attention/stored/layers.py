"""The layers of one forward pass with stored products, as autograd Functions that are differentiated in reverse order.

As with the running sum (../reversible/layers.py), a scalar, the *token*, is passed through the layers' functions, so that
autograd visits them from the last to the first; its gradient carries the number of the backward pass. A layer that gets none
begins a backward pass; one that gets a number finds its own pass, or raises. Products that other passes have overwritten are
made again from the queries and keys of all layers so far, which every function keeps: references, not copies.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.errors import AddnormError
from addnorm.kernels.grouped_attention.layerwise import Attended, LayerwiseAttention, Values
from addnorm.kernels.grouped_attention.packed import Layout, on_device
from addnorm.kernels.grouped_attention.precision import without_autocast
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings
from addnorm.kernels.grouped_attention.reversible import first_derivatives, why_not_running
from addnorm.kernels.grouped_attention.stored.buffers import ProductBuffers
from addnorm.kernels.grouped_attention.stored.passes import StoredLayer, attend_layer, differentiate_layer

STORED_LIMIT = 4 * 2**30
"""Most bytes that impl="auto" gives to a model's products: 8 layers of 8 heads at length 5 600, 32 layers at 2 800."""


def stored_bytes(problem: AttentionProblem, *, depth: int) -> int:
    """Bytes of the products of all layers of this problem's sizes."""
    return depth * Layout.of(problem).entries * problem.dtype.itemsize


def why_not_stored(problem: AttentionProblem) -> str | None:
    """Say why products of this problem's sizes cannot be stored; None if they can."""
    if on_device(problem):
        return "expected a CPU, got a CUDA device, which makes products faster than it reads them"
    return why_not_running(problem)


class StoredProducts(LayerwiseAttention):
    """Stores every layer's product in buffers that outlive the pass. First derivatives only.

    Each problem must have the terms of all layers so far, and the sizes of the first problem.

    Args:
        buffers: of the model.
        depth: number of layers.
    """

    def __init__(self, buffers: ProductBuffers, *, depth: int) -> None:
        super().__init__(keep=False)
        self._buffers, self._depth = buffers, depth
        self._number = buffers.new_number()
        self._token: Tensor | None = None
        self._layout: Layout | None = None

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        p = problem
        if self._layout is None:
            self._layout = Layout.of(p)
        layer = StoredLayer(
            buffers=self._buffers,
            number=self._number,
            layout=self._layout,
            depth=self._depth,
            settings=replace(ProblemSettings.of(p), scale=1.0),
            index=len(p.queries) - 1,
        )
        shape = (1, 1, len(p.queries))
        weights = p.value.new_full(shape, p.weights, dtype=p.dtype) if isinstance(p.weights, float) else p.weights
        earlier = [term.detach() for term in (*p.queries[:-1], *p.keys[:-1])]
        tensors = (p.bias, p.padding, p.seed, p.value, p.queries[-1], p.keys[-1])
        with without_autocast(p.value):
            attended, self._token = _Layer.apply(  # type: ignore[no-untyped-call]
                layer, earlier, weights, self._token, *tensors
            )
        return attended

    def attend_again(
        self, layers: Sequence[int], values: Values
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        raise AddnormError(
            "attention: stored: expected a residual that does not replay the attention of earlier layers."
        )


class _Layer(torch.autograd.Function):
    """(weights, token, tensors of the problem with the own term alone) -> (attended values, next token)."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: StoredLayer,
        earlier: list[Tensor],
        weights: Tensor,
        token: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        *shared, query, key = tensors
        half = len(earlier) // 2
        summed = layer.settings.problem([None, None, *shared, *earlier[:half], query, *earlier[half:], key])
        attended = attend_layer(layer, summed, weights)
        ctx.set_materialize_grads(False)
        ctx.layer = layer
        ctx.save_for_backward(weights, *shared, *summed.queries, *summed.keys)
        return attended, torch.empty((), dtype=torch.float64, device="cpu")  # read by Python, also in a meta pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_token: Tensor | None) -> tuple[Any, ...]:
        layer: StoredLayer = ctx.layer
        weights, *saved = ctx.saved_tensors  # once: checkpointing computes them again at each look
        summed = layer.settings.problem([None, None, *saved])
        _, _, weights_needed, token_needed, bias_needed, *_ = ctx.needs_input_grad
        with torch.no_grad(), without_autocast(summed.value):
            found, number = differentiate_layer(
                layer,
                summed,
                weights,
                grad,
                None if grad_token is None else int(grad_token),
                weights_needed=weights_needed,
                bias_needed=bias_needed,
                last=not token_needed,
            )
            d_weights = None if found.weights is None else found.weights.sum_to_size(weights.shape).to(weights.dtype)
            d_bias = None if found.bias is None or summed.bias is None else found.bias.to(summed.bias.dtype)
            d_token = torch.tensor(number, dtype=torch.float64, device="cpu") if token_needed else None
        grads = (d_weights, d_token, d_bias, found.value, found.queries[0], found.keys[0])
        d_weights, d_token, d_bias, *rest = first_derivatives("stored", grads, [weights, *saved])
        return None, None, d_weights, d_token, d_bias, None, None, *rest
