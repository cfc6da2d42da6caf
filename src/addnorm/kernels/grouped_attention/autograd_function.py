"""Attention without the score matrix as a differentiable function: a forward and a backward pass joined to autograd.

Why two Functions: the backward pass is one of its own, so that torch.func.vmap can batch it (per-sample gradients), and
so that differentiating it again is refused instead of being silently wrong. The passes are those of passes.py (tiles of
ordinary torch operations) or of triton/passes.py (kernels); everything here is common to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.passes import Gradients, attend_tiles, differentiate_tiles
from addnorm.kernels.grouped_attention.precision import without_autocast
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def attend_by_passes(
    problem: AttentionProblem, impl: Literal["streaming", "triton"], budget: int | None = None
) -> Tensor:
    """The attended values by the passes of this implementation, with first derivatives."""
    p = problem
    settings = _Settings(
        impl=impl,
        num_terms=len(p.queries),
        scale=p.weights if isinstance(p.weights, float) else None,
        causal=p.causal,
        sliding_window=p.sliding_window,
        dropout=p.dropout,
        first_distance=p.first_distance,
        budget=budget,
    )
    weights = p.weights if isinstance(p.weights, Tensor) else None
    tensors = (weights, p.bias, p.padding, p.seed, p.value, *p.queries, *p.keys)
    with without_autocast(p.value):
        differentiable = any(tensor is not None and tensor.requires_grad for tensor in tensors)
        out: Tensor = _apply(_Attend, torch.is_grad_enabled() and differentiable, settings, *tensors)[0]
        return out


@dataclass(frozen=True, kw_only=True)
class _Settings:
    impl: Literal["streaming", "triton"]
    num_terms: int
    scale: float | None
    causal: bool
    sliding_window: int | None
    dropout: float
    first_distance: int | None
    budget: int | None

    def problem(self, tensors: tuple[Tensor | None, ...]) -> AttentionProblem:
        weights, bias, padding, seed, value, *projections = tensors
        shared = weights if weights is not None else self.scale
        assert value is not None
        assert shared is not None
        return AttentionProblem(
            queries=tuple(projections[: self.num_terms]),  # type: ignore[arg-type]
            keys=tuple(projections[self.num_terms :]),  # type: ignore[arg-type]
            value=value,
            weights=shared,
            causal=self.causal,
            sliding_window=self.sliding_window,
            bias=bias,
            first_distance=self.first_distance,
            padding=padding,
            dropout=self.dropout,
            seed=seed,
            normalisation="softmax",
        )

    def attend(self, problem: AttentionProblem) -> tuple[Tensor, Tensor]:
        """The attended values, and per row what the backward pass wants besides: nothing, or the log-sum-exp."""
        if self.impl == "triton":
            from addnorm.kernels.grouped_attention.triton.passes import attend_on_device

            return attend_on_device(problem)
        return attend_tiles(problem, self.budget), problem.value.new_empty(problem.batch, 0)

    def differentiate(
        self, problem: AttentionProblem, out: Tensor, log_sum: Tensor, grad: Tensor, *, bias_needed: bool
    ) -> Gradients:
        if self.impl == "triton":
            from addnorm.kernels.grouped_attention.triton.passes import differentiate_on_device

            return differentiate_on_device(problem, out, log_sum, grad, bias_needed=bias_needed)
        return differentiate_tiles(problem, grad, bias_needed=bias_needed, budget=self.budget)


def _apply(function: type[torch.autograd.Function], differentiable: bool, *inputs: Any) -> tuple[Tensor, ...]:
    """The function's outputs; Dynamo gets its plain forward where no gradient is to be taken of it.

    Without gradients, Dynamo tells a forward with a context from one without by counting parameters, and a forward of
    any number of tensors is miscounted (torch 2.13, AutogradFunctionVariable.call_apply).
    """
    traced = torch.compiler.is_dynamo_compiling() and not differentiable
    outputs: tuple[Tensor, ...] = (function.forward if traced else function.apply)(*inputs)
    return outputs


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(settings: _Settings, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        return settings.attend(settings.problem(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.settings, tensors = inputs[0], inputs[1:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _grad_log_sum: Tensor) -> tuple[Tensor | None, ...]:
        out, log_sum, weights, bias, *rest = ctx.saved_tensors
        bias_needed = bias is not None and ctx.needs_input_grad[2]
        with without_autocast(grad):
            tensors = (grad, out, log_sum, weights, bias, *rest)
            found = iter(_apply(_Differentiate, False, ctx.settings, bias_needed, *tensors))
        d_weights = next(found) if weights is not None else None
        d_bias = next(found) if bias_needed else None
        return None, d_weights, d_bias, None, None, *found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], settings: _Settings, *tensors: Tensor | None) -> tuple[Any, Any]:
        folded = _fold(settings, info.batch_size, in_dims[1:], tensors)
        outputs = _Attend.apply(settings, *folded)  # type: ignore[no-untyped-call]
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0, 0)


class _Differentiate(torch.autograd.Function):
    """(grad, out, log_sum, inputs of _Attend) -> gradients of weights and bias, where asked for, and of the others."""

    @staticmethod
    def forward(settings: _Settings, bias_needed: bool, grad: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        out, log_sum, *inputs = tensors
        assert out is not None
        assert log_sum is not None
        problem = settings.problem(tuple(inputs))
        found = settings.differentiate(problem, out, log_sum, grad, bias_needed=bias_needed)
        shared = []
        if isinstance(problem.weights, Tensor) and found.weights is not None:
            shared.append(found.weights.sum_to_size(problem.weights.shape).to(problem.weights.dtype))
        if problem.bias is not None and found.bias is not None:
            shared.append(found.bias.to(problem.bias.dtype))
        return (*shared, found.value, *found.queries, *found.keys)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise InputError(
            "impl='streaming' and impl='triton' have a first derivative only, and a second one was asked for. "
            "Use impl='reference', which can be differentiated to any order."
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], settings: _Settings, bias_needed: bool, *tensors: Tensor | None
    ) -> tuple[Any, Any]:
        folded = _fold(settings, info.batch_size, in_dims[2:], tensors)
        grads = _Differentiate.apply(settings, bias_needed, *folded)  # type: ignore[no-untyped-call]
        _, _, _, weights, bias, _, _, *rest = (
            _one_sample(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims[2:], tensors, strict=True)
        )
        wanted = [weights, bias if bias_needed else None, *rest]
        shapes = [tensor.shape for tensor in wanted if tensor is not None]
        # Weights and bias may be shared by the items of a sample: their gradients are summed over those again.
        apart = [grad.unflatten(0, (info.batch_size, -1)) for grad in grads]
        summed = tuple(grad.sum_to_size(shape) for grad, shape in zip(apart, shapes, strict=True))
        return summed, (0,) * len(summed)


def _one_sample(samples: int, dim: int | None, tensor: Tensor | None) -> Tensor | None:
    """The tensor with its sample axis in front, a view; tensors that all samples share are expanded."""
    if tensor is None or dim is None:
        return None if tensor is None else tensor.expand(samples, *tensor.shape)
    return tensor.movedim(dim, 0)


def _fold(
    settings: _Settings, samples: int, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """Samples become batch items; what the items of a sample share is expanded. The queries come last: they know."""
    if settings.dropout:
        raise InputError(
            "torch.func.vmap over attend takes dropout=0.0, because a place in the batch decides what drops; "
            f"got {settings.dropout}. Attend without dropout, or loop over the samples."
        )
    apart = [_one_sample(samples, dim, tensor) for dim, tensor in zip(dims, tensors, strict=True)]
    assert apart[-1] is not None
    batch = apart[-1].shape[1]
    return [None if t is None else t.expand(samples, batch, *t.shape[2:]).flatten(0, 1) for t in apart]
