"""Attention without the score matrix as an autograd Function: a forward and a backward pass.

The backward pass is a Function of its own, so that torch.func.vmap can batch it (per-sample gradients), and so that a second
derivative is refused instead of being silently wrong. The passes are those of passes.py (tiles of ordinary torch operations)
or of triton/passes.py (kernels); this module is common to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels import without_autocast
from addnorm.kernels.grouped_attention.passes import Gradients, attend_tiles, differentiate_tiles
from addnorm.kernels.grouped_attention.problem import AttentionProblem, ProblemSettings, by_row, tensors_of


def attend_by_passes(
    problem: AttentionProblem, impl: Literal["streaming", "triton"], budget: int | None = None
) -> Tensor:
    """Compute the attended values by the passes of an implementation, with first derivatives."""
    p, tensors = problem, tensors_of(problem)
    settings = _Settings(of_problem=ProblemSettings.of(p), impl=impl, budget=budget)
    with without_autocast(p.value):
        differentiable = any(tensor is not None and tensor.requires_grad for tensor in tensors)
        out: Tensor = _apply(_Attend, torch.is_grad_enabled() and differentiable, settings, *tensors)[0]
        return out


@dataclass(frozen=True, kw_only=True)
class _Settings:
    of_problem: ProblemSettings
    impl: Literal["streaming", "triton"]
    budget: int | None

    def attend(self, problem: AttentionProblem) -> tuple[Tensor, Tensor]:
        """Return the attended values, and what the backward pass needs per row: nothing, or the log-sum-exp."""
        if self.impl == "triton":
            from addnorm.kernels.grouped_attention.triton.passes import attend_on_device

            return attend_on_device(problem)
        return attend_tiles(problem, self.budget)

    def differentiate(
        self, problem: AttentionProblem, out: Tensor, log_sum: Tensor, grad: Tensor, *, bias_needed: bool
    ) -> Gradients:
        if self.impl == "triton":
            from addnorm.kernels.grouped_attention.triton.passes import differentiate_on_device

            return differentiate_on_device(problem, out, log_sum, grad, bias_needed=bias_needed)
        return differentiate_tiles(problem, grad, bias_needed=bias_needed, budget=self.budget)


def _apply(function: type[torch.autograd.Function], differentiable: bool, *inputs: Any) -> tuple[Tensor, ...]:
    """Apply the function; under Dynamo and without gradients, call its plain forward.

    Without gradients, Dynamo distinguishes a forward with a context from one without by counting parameters, and miscounts a
    forward of any number of tensors (torch 2.13, AutogradFunctionVariable.call_apply).
    """
    traced = torch.compiler.is_dynamo_compiling() and not differentiable
    outputs: tuple[Tensor, ...] = (function.forward if traced else function.apply)(*inputs)
    return outputs


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(settings: _Settings, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        return settings.attend(settings.of_problem.problem(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.settings, tensors = inputs[0], inputs[1:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _grad_log_sum: Tensor) -> tuple[Tensor | None, ...]:
        out, log_sum, sinks, weights, bias, *rest = ctx.saved_tensors
        bias_needed = bias is not None and ctx.needs_input_grad[3]
        with without_autocast(grad):
            tensors = (grad, out, log_sum, sinks, weights, bias, *rest)
            gradients = iter(_apply(_Differentiate, False, ctx.settings, bias_needed, *tensors))
        d_sinks = next(gradients) if sinks is not None else None
        d_weights = next(gradients) if weights is not None else None
        d_bias = next(gradients) if bias_needed else None
        return None, d_sinks, d_weights, d_bias, None, None, *gradients

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], settings: _Settings, *tensors: Tensor | None) -> tuple[Any, Any]:
        folded = _fold(settings, info.batch_size, in_dims[1:], tensors)
        outputs = _Attend.apply(settings, *folded)  # type: ignore[no-untyped-call]
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0, 0)


class _Differentiate(torch.autograd.Function):
    """(grad, out, log_sum, inputs of _Attend) -> gradients of sinks, weights and bias, if needed, and of the other inputs."""

    @staticmethod
    def forward(settings: _Settings, bias_needed: bool, grad: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        out, log_sum, *inputs = tensors
        assert out is not None
        assert log_sum is not None
        problem = settings.of_problem.problem(tuple(inputs))
        gradients = settings.differentiate(problem, out, log_sum, grad, bias_needed=bias_needed)
        shared = []
        if problem.sinks is not None:
            shared.append(_sink_gradient(problem.sinks, out, log_sum, grad))
        if isinstance(problem.weights, Tensor) and gradients.weights is not None:
            shared.append(gradients.weights.sum_to_size(problem.weights.shape).to(problem.weights.dtype))
        if problem.bias is not None and gradients.bias is not None:
            shared.append(gradients.bias.to(problem.bias.dtype))
        return (*shared, gradients.value, *gradients.queries, *gradients.keys)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save nothing, because there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise InputError(
            "impl='streaming' and impl='triton': expected a first derivative, got a second one. "
            "Use impl='reference', which has derivatives of any order."
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], settings: _Settings, bias_needed: bool, *tensors: Tensor | None
    ) -> tuple[Any, Any]:
        folded = _fold(settings, info.batch_size, in_dims[2:], tensors)
        grads = _Differentiate.apply(settings, bias_needed, *folded)  # type: ignore[no-untyped-call]
        _, _, _, sinks, weights, bias, _, _, *rest = (
            _one_sample(info.batch_size, dim, tensor) for dim, tensor in zip(in_dims[2:], tensors, strict=True)
        )
        wanted = [sinks, weights, bias if bias_needed else None, *rest]
        shapes = [tensor.shape for tensor in wanted if tensor is not None]
        # The items of a sample may share weights and bias: their gradients are summed over the items.
        apart = [grad.unflatten(0, (info.batch_size, -1)) for grad in grads]
        summed = tuple(grad.sum_to_size(shape) for grad, shape in zip(apart, shapes, strict=True))
        return summed, (0,) * len(summed)


def _sink_gradient(sinks: Tensor, out: Tensor, log_sum: Tensor, grad: Tensor) -> Tensor:
    """A sink of probability p has no value, so its score gets p (0 - Σ grad * out) from every row."""
    scores = by_row(sinks).to(log_sum.dtype)
    through = (grad.to(log_sum.dtype) * out.to(log_sum.dtype)).sum(-1, keepdim=True)
    d_scores = -(scores - log_sum[..., None]).exp() * through
    return d_scores.sum_to_size(scores.shape).view(sinks.shape).to(sinks.dtype)


def _one_sample(samples: int, dim: int | None, tensor: Tensor | None) -> Tensor | None:
    """View the tensor with its sample axis first; a tensor that all samples share is expanded."""
    if tensor is None or dim is None:
        return None if tensor is None else tensor.expand(samples, *tensor.shape)
    return tensor.movedim(dim, 0)


def _fold(
    settings: _Settings, samples: int, dims: tuple[int | None, ...], tensors: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """Fold the sample axis into the batch axis; tensors that the items of a sample share are expanded."""
    if settings.of_problem.dropout:
        raise InputError(
            "torch.func.vmap over attend takes dropout=0.0, because the index in the batch selects what is dropped; "
            f"got {settings.of_problem.dropout}. Attend without dropout, or loop over the samples."
        )
    separate = [_one_sample(samples, dim, tensor) for dim, tensor in zip(dims, tensors, strict=True)]
    assert separate[-1] is not None  # a key tensor: queries and keys come last
    batch = separate[-1].shape[1]
    return [None if t is None else t.expand(samples, batch, *t.shape[2:]).flatten(0, 1) for t in separate]
