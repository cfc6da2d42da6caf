"""The layers of one forward pass over one running sum, as autograd Functions that are differentiated in reverse order.

Layers must be differentiated from the last to the first, each once. A scalar, the *token*, is passed through the layers'
functions, so that autograd itself visits them in this order. Its gradient carries the number of the backward pass: a layer that
gets none starts a new G; a layer that gets a number finds the G of its own pass, or raises.

R may have changed hands since the forward pass: another forward pass, a second backward pass, recomputation. Whoever finds
another's sum makes its own again from the queries and keys of all layers so far, which every function keeps: references, not
copies.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.errors import AddnormError, InputError
from addnorm.kernels.grouped_attention.counting import at_once
from addnorm.kernels.grouped_attention.gpu import kernel_refusal
from addnorm.kernels.grouped_attention.layerwise import Attended, LayerwiseAttention, Values
from addnorm.kernels.grouped_attention.packed import Layout, on_device
from addnorm.kernels.grouped_attention.precision import without_autocast
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings
from addnorm.kernels.grouped_attention.reversible.buffers import ScoreBuffers
from addnorm.kernels.grouped_attention.reversible.passes import SummedLayer, attend_layer, differentiate_layer

RUNNING_LIMIT = 4 * 2**30
"""Most bytes that impl="auto" gives to a model's two buffers: length 11 000 for one sequence with 8 heads."""


def running_bytes(problem: AttentionProblem) -> int:
    """Bytes of the two buffers that training with a running sum of this problem's sizes keeps."""
    return 2 * Layout.of(problem).entries * problem.dtype.itemsize


def why_not_running(problem: AttentionProblem) -> str | None:
    """Say why scores of this problem cannot be summed in buffers; None if they can."""
    device = problem.value.device.type
    if problem.normalisation != "softmax":
        return f"expected the softmax, got {problem.normalisation}"
    if problem.cap is not None:
        return f"expected scores without a cap, which stands between their sum and the softmax, got {problem.cap}"
    if problem.sinks is not None:
        return "expected scores without sinks"
    if problem.column_keys:
        return "expected scores without a column of further keys per row"
    if on_device(problem) and (refused := kernel_refusal(problem)) is not None:
        return refused.replace("impl='triton'", "the kernels of a GPU")
    if device != "cpu" and not on_device(problem) and not at_once(problem):
        return f"expected a CPU or a CUDA device, got one of type {device}"
    if torch.compiler.is_compiling():
        return "expected a model that is not traced: torch.compile and torch.export cannot see the buffers"
    if torch._C._are_functorch_transforms_active():
        return "expected no transformation of torch.func, which calls a layer with several values at once"
    return None


class ReversibleSum(LayerwiseAttention):
    """Adds every layer's scores to one sum in buffers that outlive the pass. First derivatives only.

    Each problem must have the terms of all layers so far, one weight for all of them, and the sizes of the first problem.

    Args:
        buffers: of the model.
    """

    def __init__(self, buffers: ScoreBuffers) -> None:
        super().__init__(keep=False)
        self._buffers = buffers
        self._number = buffers.new_number()
        self._token: Tensor | None = None
        self._layout: Layout | None = None
        self._weights: list[float] = []

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        p, index = problem, len(problem.queries) - 1
        if self._layout is None:
            self._layout = Layout.of(p)
        weight = p.weights if isinstance(p.weights, float) else p.weights[0, 0, -1]
        if index == len(self._weights):  # else this layer is computed again
            self._weights.append(_number(weight))
        layer = SummedLayer(
            buffers=self._buffers,
            number=self._number,
            layout=self._layout,
            settings=replace(ProblemSettings.of(p), scale=1.0),
            weights=tuple(self._weights[: index + 1]),
        )
        earlier = [term.detach() for term in (*p.queries[:-1], *p.keys[:-1])]
        tensors = (p.bias, p.padding, p.seed, p.value, p.queries[-1], p.keys[-1])
        with without_autocast(p.value):
            attended, self._token = _Layer.apply(  # type: ignore[no-untyped-call]
                layer, earlier, weight, self._token, *tensors
            )
        return attended

    def attend_again(
        self, layers: Sequence[int], values: Values
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        raise AddnormError(
            "attention: running: expected a residual that does not replay the attention of earlier layers."
        )


def _number(weight: float | Tensor) -> float:
    if isinstance(weight, float):
        return weight
    # Tensors on the meta device have no values; `addnorm plan` counts operations there.
    return 1.0 if weight.is_meta else weight.item()


class _Layer(torch.autograd.Function):
    """(weight, token, tensors of the problem with the own term alone) -> (attended values, next token)."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: SummedLayer,
        earlier: list[Tensor],
        weight: float | Tensor,
        token: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        *shared, query, key = tensors
        half = len(earlier) // 2
        summed = layer.settings.problem([None, None, *shared, *earlier[:half], query, *earlier[half:], key])
        attended, log_sum = attend_layer(layer, summed)
        ctx.set_materialize_grads(False)
        ctx.layer = layer
        ctx.weight_dtype = weight.dtype if isinstance(weight, Tensor) else None
        forward = () if log_sum is None else (attended, log_sum)
        ctx.kept = len(forward)
        ctx.save_for_backward(*forward, *shared, *summed.queries, *summed.keys)
        return attended, torch.empty(2, dtype=torch.float64, device="cpu")  # read by Python, also in a meta pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_token: Tensor | None) -> tuple[Any, ...]:
        layer: SummedLayer = ctx.layer
        tensors = ctx.saved_tensors  # once: checkpointing computes them again at each look
        forward, saved = tensors[: ctx.kept], tensors[ctx.kept :]
        summed = layer.settings.problem([None, None, *saved])
        _, _, weight_needed, token_needed, bias_needed, *_ = ctx.needs_input_grad
        under_way = None
        if grad_token is not None:
            number, scale = grad_token.tolist()
            under_way = int(number), scale
        with torch.no_grad(), without_autocast(summed.value):
            found, number = differentiate_layer(
                layer,
                summed,
                forward or None,
                grad,
                under_way,
                weight_needed=weight_needed,
                bias_needed=bias_needed,
                last=not token_needed,
            )
            d_weight = None if found.weights is None else found.weights.to(ctx.weight_dtype)
            d_bias = None if found.bias is None or summed.bias is None else found.bias.to(summed.bias.dtype)
            d_token = None
            if token_needed:
                d_token = torch.tensor([number, layer.scale(layer.index)], dtype=torch.float64, device="cpu")
        grads = (d_weight, d_token, d_bias, found.value, found.queries[0], found.keys[0])
        d_weight, d_token, d_bias, *rest = first_derivatives("running", grads, saved)
        return None, None, d_weight, d_token, d_bias, None, None, *rest


def first_derivatives(
    impl: str, grads: Sequence[Tensor | None], inputs: Sequence[Tensor | None]
) -> Sequence[Tensor | None]:
    """Return the gradients; with create_graph=True as functions of the inputs whose own derivative raises InputError.

    Args:
        impl: name of the implementation, for the message.
        grads: computed without a graph.
        inputs: what they depend on.
    """
    if not torch.is_grad_enabled():
        return grads
    found: Sequence[Tensor | None] = _FirstDerivative.apply(impl, len(grads), *grads, *inputs)  # type: ignore[no-untyped-call]
    return found


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, impl: str, count: int, *grads_and_inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.impl = impl
        return grads_and_inputs[:count]

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> Any:
        raise InputError(
            f"attention: {ctx.impl}: expected a first derivative, got a second one. "
            "Use attention='reference', which has derivatives of any order."
        )
