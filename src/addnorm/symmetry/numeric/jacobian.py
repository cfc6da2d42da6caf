"""The Jacobian of all outputs with respect to all parameters, in float64, over many inputs of several lengths."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import call
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed
from addnorm.redundancy.numeric.probe import not_differentiable

FEWEST_CASES = 8
MORE_CASES = 100
"""Inputs of a model whose count is not clear from few: an expert that few tokens reach sees little of each of them."""
_ROWS_PER_PARAMETER = 2
_CHUNK = 64
"""Rows that are differentiated together."""


_LEAST = 0.25
"""Smallest entry of a vector at a generic point, as a share of the vector's root mean square."""


@dataclass(frozen=True)
class Jacobian:
    """Rows of random or single outputs, columns of parameters."""

    matrix: Tensor
    """float64[row, column]."""
    unread: Tensor
    """bool[column]: no output of any case depends on it."""
    cases: int
    """Number of inputs."""


def generic_point(model: nn.Module, *, seed: int = 0, training: bool = False) -> nn.Module:
    """Copy a model to the CPU, in float64 and evaluation or training mode, with generic weights whose vectors have no entry
    near zero.

    A gain of 1e-4 beside others of one is generic, but the columns that read it are then 1e4 times less effective than their
    neighbours, and the equations lose as many digits.
    """
    made = generic(model, torch.float64, seed=seed).train(training)
    with torch.no_grad():
        for each in made.parameters():
            if each.is_floating_point() and each.dim() < 2 and each.numel():
                least = _LEAST * each.square().mean().sqrt()
                sign = torch.where(each < 0, -1.0, 1.0)
                each.copy_(torch.where(each.abs() < least, each + sign * least, each))
    return made


def jacobian(
    model: nn.Module,
    cases: Cases,
    observe: Observe,
    *,
    fewest_cases: int = FEWEST_CASES,
) -> Jacobian:
    """Differentiate all observed outputs at the model's point.

    Of inputs with more outputs than are needed, random combinations are differentiated.

    Args:
        model: a copy in float64.
        cases: inputs that the model takes.
        observe: the observed output.
        fewest_cases: number of inputs at least, where the model takes others than the given ones.

    Raises:
        InputError: no output depends on parameters, or autograd cannot differentiate it.
    """
    parameters = [each for each in model.parameters() if each.is_floating_point()]
    for each in parameters:
        each.requires_grad_(True)
    count = sum(each.numel() for each in parameters)
    wanted = _ROWS_PER_PARAMETER * count + 50
    first = _outputs(model, cases(0)[1], observe)
    number = max(fewest_cases, cases.sweep, math.ceil(wanted / max(1, first.numel()))) if cases.fresh else 1
    per_case = math.ceil(wanted / number)
    generator = torch.Generator().manual_seed(0)
    rows = [
        _rows(_outputs(model, cases(each)[1], observe), parameters, per_case, generator)
        for each in range(1, number + 1)
    ]
    matrix = torch.cat(rows)
    matrix = matrix[torch.isfinite(matrix).all(1)]
    if not len(matrix):
        raise InputError(
            "expected finite outputs and derivatives at generic weights, got NaN or infinity at every input."
        )
    return Jacobian(matrix=matrix, unread=(matrix == 0).all(0), cases=number)


def scope(
    model: nn.Module, cases: Cases, observe: Observe, derivative: Jacobian, columns: Mapping[str, slice], left: int
) -> list[str]:
    """Sentences about what the count cannot tell: parameters that matter by jumps, and inputs with few values.

    Args:
        model: the copy that was differentiated; not changed.
        cases: inputs that the model takes.
        observe: the observed output.
        derivative: at the model's point.
        columns: the place of every parameter.
        left: number of directions that are not explained.
    """
    notes = []
    jumping = _without_derivative(model, cases, observe, derivative, columns)
    if jumping:
        notes.append(
            f"the outputs change with {', '.join(jumping)} but have no derivative, as behind a rounding or a largest entry; "
            "these numbers count as unread"
        )
    leaves = [each for each in tree_leaves((cases(1)[1].args, dict(cases(1)[1].kwargs))) if isinstance(each, Tensor)]
    if left and any(not each.is_floating_point() and each.numel() > 1 for each in leaves):
        notes.append(
            "what reads one token alone has only as many inputs as there are tokens, so that unexplained directions may be "
            "free on this vocabulary only: repeat with more tokens"
        )
    return notes


@torch.no_grad()
def _without_derivative(
    model: nn.Module, cases: Cases, observe: Observe, derivative: Jacobian, columns: Mapping[str, slice]
) -> list[str]:
    """Parameters of which whole tensors have no derivative, and with which the outputs change."""
    inputs = cases(1)[1]
    parameters = dict(model.named_parameters())

    def outputs() -> Tensor:
        with Float64Mode():
            return torch.cat([each.double().flatten() for each in observed(call(model, inputs), observe)])

    without, before = [], outputs()
    for name, at in columns.items():
        if bool(derivative.unread[at].all()):
            own = parameters[name]
            kept = own.clone()
            own.copy_(-1.5 * own - 0.5)
            after = outputs()
            own.copy_(kept)
            if after.shape != before.shape or not torch.equal(after, before):
                without.append(name)
    return without


class _WholeDerivative(TorchFunctionMode):
    """Derivatives also of what training leaves alone, though the outputs depend on it: the row of the padding token, and what
    a model computes without autograd, such as positions or the features of a frozen part."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        if func is torch.nn.functional.embedding:
            args, kwargs = (*args[:2], None, *args[3:]), {**(kwargs or {})}
            kwargs.pop("padding_idx", None)
        if func is torch._C._set_grad_enabled:
            return None
        if func is Tensor.detach:
            return args[0].view_as(args[0])
        return func(*args, **(kwargs or {}))


def _outputs(model: nn.Module, inputs: Inputs, observe: Observe) -> Tensor:
    # The fused operations have no batched backward pass.
    with torch.enable_grad(), Float64Mode(), sdpa_kernel(SDPBackend.MATH):
        try:
            with _WholeDerivative():
                tensors = observed(call(model, inputs), observe)
        except RuntimeError:  # a model that writes in place what it computes without autograd
            tensors = observed(call(model, inputs), observe)
    floats = [each.double().flatten() for each in tensors if each.is_floating_point()]
    if not any(each.requires_grad for each in floats):
        raise InputError(
            "expected an output that autograd can follow to the model's parameters, got none. If the model leaves autograd "
            "(torch.inference_mode, .data), give a forward without it."
        )
    return torch.cat(floats)


def _rows(output: Tensor, parameters: Sequence[Tensor], most: int, generator: torch.Generator) -> Tensor:
    """At most `most` rows of one input's Jacobian."""
    output = output[torch.isfinite(output)]
    size = output.numel()
    if size <= most:
        weights = torch.eye(size, dtype=torch.float64)
    else:
        weights = torch.randn(most, size, generator=generator, dtype=torch.float64)
    try:
        parts = [_gradients(output, parameters, chunk, is_batched=True) for chunk in weights.split(_CHUNK)]
    except RuntimeError:  # an operation whose backward pass has no batching rule
        try:
            parts = [_gradients(output, parameters, row, is_batched=False) for row in weights]
        except RuntimeError as error:  # a forward that writes over a weight which it has read
            raise not_differentiable(error) from error
    return torch.cat(parts)


def _gradients(output: Tensor, parameters: Sequence[Tensor], weights: Tensor, *, is_batched: bool) -> Tensor:
    made = torch.autograd.grad(
        output, parameters, weights, retain_graph=True, allow_unused=True, is_grads_batched=is_batched
    )
    lead = len(weights) if is_batched else 1
    parts = [
        torch.zeros(lead, each.numel(), dtype=torch.float64) if grad is None else grad.reshape(lead, -1)
        for grad, each in zip(made, parameters, strict=True)
    ]
    return torch.cat(parts, 1)
