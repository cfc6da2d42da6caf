"""The layers of one forward pass over kept scores, as autograd Functions that are differentiated in reverse order.

Layers must be differentiated from the last to the first, each once, since each finds in the buffers what the layer above left.
Autograd knows no such order: layers are joined by their values alone, and it could visit them in any order that fits. So a
small tensor, the *token*, is passed through the layers' functions: each takes the token of the layer below and returns its own.
Autograd then visits them from the last to the first, and the token's gradient carries the number of the backward pass and the
factor of the layer it comes from: a layer that gets none begins a backward pass; one that gets a number finds its own pass, or
raises.

The kept scores may have changed hands since the forward pass: another forward pass, a second backward pass, recomputation.
Whoever finds another's makes its own again from the queries and keys of all layers so far, which every function keeps:
references, not copies.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.errors import AddnormError, InputError
from addnorm.kernels import without_autocast
from addnorm.kernels.grouped_attention import launches
from addnorm.kernels.grouped_attention.api import kernel_refusal
from addnorm.kernels.grouped_attention.counting import at_once
from addnorm.kernels.grouped_attention.kept_scores.buffers import KeptBuffers, ProductBuffers, ScoreBuffers
from addnorm.kernels.grouped_attention.kept_scores.layer import KeptLayer, Needed
from addnorm.kernels.grouped_attention.kept_scores.running import SummedLayer
from addnorm.kernels.grouped_attention.kept_scores.stored import StoredLayer
from addnorm.kernels.grouped_attention.layerwise import Attended, LayerwiseAttention, Values
from addnorm.kernels.grouped_attention.packed import Layout, on_device
from addnorm.kernels.grouped_attention.planned import is_planning, runs_on
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings

RUNNING_LIMIT = 4 * 2**30
"""Most bytes that impl="auto" gives to a model's two buffers: length 11 000 for one sequence with 8 heads."""

RUNNING_SHARE = 0.25
"""Most of a GPU's memory that impl="auto" gives to them. Of all memory, not of what is free, so that a run takes
the same path every time."""

STORED_LIMIT = 4 * 2**30
"""Most bytes that impl="auto" gives to a model's products: 8 layers of 8 heads at length 5 600, 32 layers at 2 800."""


def running_bytes(problem: AttentionProblem) -> int:
    """Bytes of the two buffers that training with a running sum of this problem's sizes keeps."""
    return 2 * Layout.of(problem).entries * problem.dtype.itemsize


def running_limit(problem: AttentionProblem) -> int:
    """Most bytes that impl="auto" gives to the two buffers on the problem's device."""
    device = runs_on(problem)
    if device.type != "cuda":
        return RUNNING_LIMIT
    return int(RUNNING_SHARE * torch.cuda.get_device_properties(device).total_memory)


def stored_bytes(problem: AttentionProblem, *, depth: int) -> int:
    """Bytes of the products of all layers of this problem's sizes."""
    return depth * Layout.of(problem).entries * problem.dtype.itemsize


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
    if on_device(problem):
        widest, width = launches.widest("attend_sum", problem.value.dtype), max(problem.head_dim, problem.value_dim)
        if width > widest:
            dtype = str(problem.value.dtype).removeprefix("torch.")
            return f"expected heads of at most {widest} entries in {dtype} on a GPU, got {width}"
    if device != "cpu" and not on_device(problem) and not at_once(problem) and not is_planning(problem):
        return f"expected a CPU or a CUDA device, got one of type {device}"
    if torch.compiler.is_compiling():
        return "expected a model that is not traced: torch.compile and torch.export cannot see the buffers"
    if torch._C._are_functorch_transforms_active():
        return "expected no transformation of torch.func, which calls a layer with several values at once"
    return None


def why_not_stored(problem: AttentionProblem) -> str | None:
    """Say why products of this problem's sizes cannot be stored; None if they can."""
    if on_device(problem):
        return "expected a CPU, got a CUDA device, which makes products faster than it reads them"
    return why_not_running(problem)


class KeptScores(LayerwiseAttention):
    """Attention of one forward pass over kept scores. First derivatives only.

    Each problem must have the terms of all layers so far, and the sizes of the first problem.

    Args:
        buffers: of the model.
    """

    def __init__(self, buffers: KeptBuffers[Any]) -> None:
        super().__init__(keep=False)
        self._number = buffers.new_number()
        self._impl = buffers.impl
        self._token: Tensor | None = None
        self._layout: Layout | None = None

    @abstractmethod
    def layer(self, problem: AttentionProblem, settings: dict[str, Any]) -> tuple[KeptLayer, float | Tensor]:
        """The next layer from the settings that all layers have, and its differentiable weights."""

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        p = problem
        if self._layout is None:
            self._layout = Layout.of(p)
        settings = replace(ProblemSettings.of(p), scale=1.0)
        layer, weights = self.layer(
            p, {"number": self._number, "layout": self._layout, "settings": settings, "index": len(p.queries) - 1}
        )
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
            f"attention: {self._impl}: expected a residual that does not replay the attention of earlier layers."
        )


class ReversibleSum(KeptScores):
    """Adds every layer's scores to one sum in buffers that outlive the pass. All terms of a problem have one weight."""

    def __init__(self, buffers: ScoreBuffers) -> None:
        super().__init__(buffers)
        self._buffers = buffers
        self._weights: list[float] = []

    def layer(self, problem: AttentionProblem, settings: dict[str, Any]) -> tuple[SummedLayer, float | Tensor]:
        p, index = problem, settings["index"]
        weight = p.weights if isinstance(p.weights, float) else p.weights[0, 0, -1]
        learned = isinstance(weight, Tensor) and on_device(p)
        if index == len(self._weights):  # else this layer is computed again
            self._weights.append(1.0 if learned else _number(weight))
        weights = tuple(self._weights[: index + 1])
        return SummedLayer(buffers=self._buffers, weights=weights, learned=learned, **settings), weight


class StoredProducts(KeptScores):
    """Stores every layer's product in buffers that outlive the pass.

    Args:
        buffers: of the model.
        depth: number of layers.
    """

    def __init__(self, buffers: ProductBuffers, *, depth: int) -> None:
        super().__init__(buffers)
        self._buffers, self._depth = buffers, depth

    def layer(self, problem: AttentionProblem, settings: dict[str, Any]) -> tuple[StoredLayer, Tensor]:
        p, shape = problem, (1, 1, len(problem.queries))
        weights = p.value.new_full(shape, p.weights, dtype=p.dtype) if isinstance(p.weights, float) else p.weights
        return StoredLayer(buffers=self._buffers, depth=self._depth, **settings), weights


def _number(weight: float | Tensor) -> float:
    if isinstance(weight, float):
        return weight
    # Tensors on the meta device have no values; `addnorm plan` counts operations there.
    return 1.0 if weight.is_meta else weight.item()


class _Layer(torch.autograd.Function):
    """(weights, token, tensors of the problem with the own term alone) -> (attended values, next token)."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: KeptLayer,
        earlier: list[Tensor],
        weights: float | Tensor,
        token: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        *shared, query, key = tensors
        half = len(earlier) // 2
        summed = layer.settings.problem([None, None, *shared, *earlier[:half], query, *earlier[half:], key])
        learned = weights if isinstance(weights, Tensor) else None
        attended, *more = layer.attend(summed, learned)
        ctx.set_materialize_grads(False)
        ctx.layer = layer
        forward = (attended, *more) if more else ()
        ctx.kept = len(forward)
        ctx.save_for_backward(*forward, learned, *shared, *summed.queries, *summed.keys)
        return attended, torch.empty(2, dtype=torch.float64, device="cpu")  # read by Python, also in a meta pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_token: Tensor | None) -> tuple[Any, ...]:
        layer: KeptLayer = ctx.layer
        tensors = ctx.saved_tensors  # once: checkpointing computes them again at each look
        forward, (weights, *saved) = tensors[: ctx.kept], tensors[ctx.kept :]
        summed = layer.settings.problem([None, None, *saved])
        _, _, weights_needed, token_needed, bias_needed, *_ = ctx.needs_input_grad
        token = None
        if grad_token is not None:
            number, factor = grad_token.tolist()
            token = int(number), factor
        needed = Needed(weights=weights_needed, bias=bias_needed, earlier=token_needed)
        with torch.no_grad(), without_autocast(summed.value):
            gradients, below = layer.differentiate(summed, weights, forward, grad, token, needed)
            d_weights = None if gradients.weights is None else gradients.weights.to(weights.dtype)
            d_bias = None if gradients.bias is None or summed.bias is None else gradients.bias.to(summed.bias.dtype)
            d_token = torch.tensor(below, dtype=torch.float64, device="cpu") if token_needed else None
        grads = (d_weights, d_token, d_bias, gradients.value, gradients.queries[0], gradients.keys[0])
        impl = layer.buffers.impl
        d_weights, d_token, d_bias, *rest = first_derivatives(impl, grads, [weights, *saved])
        return None, None, d_weights, d_token, d_bias, None, None, *rest


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
    marked: Sequence[Tensor | None] = _FirstDerivative.apply(impl, len(grads), *grads, *inputs)  # type: ignore[no-untyped-call]
    return marked


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
