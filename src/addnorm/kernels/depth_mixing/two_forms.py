"""Operations with two forms: a plain one of ordinary operations, which defines the result, and a fast one.

The fast form goes through the rows in chunks that stay in a processor's cache, writes into place and keeps its inputs alone for
the backward pass. Tracers, transformations of torch.func, forward-mode differentiation and tensors narrower than float32 get
the plain form; a second derivative is the derivative of the plain form's derivative.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from addnorm.kernels import without_autocast

_CHUNK = 2**17
"""Entries of a chunk: with its operands it fits the second-level caches of two cores."""
Gradients = Sequence[Tensor | None]
Result = Tensor | tuple[Tensor, ...]
"""One tensor, or several. An input may be among them: what reads it later then reads the result, so that its gradient arrives
as a part of the results' and is added where it is in a cache, not in passes of its own."""


class TwoForms(ABC):
    """An operation on tensors of one dtype. `needed` says of every input whether its gradient is asked for."""

    @abstractmethod
    def plain(self, *tensors: Any) -> Any:
        """Compute the result in ordinary operations."""

    @abstractmethod
    def fast(self, *tensors: Any) -> tuple[Result, tuple[Tensor, ...]]:
        """Compute the same without recording, with what `gradients` needs besides the inputs."""

    @abstractmethod
    def gradients(self, grad: Any, needed: Sequence[bool], kept: tuple[Tensor, ...], *tensors: Any) -> Gradients:
        """Compute the gradients of the inputs, None where none is needed, from that of the result, or those of all results."""

    def __call__(self, *tensors: Tensor | None) -> Any:
        given = [tensor for tensor in tensors if tensor is not None]
        with without_autocast(given[0]):
            if _takes_plain_form(given):
                return self.plain(*tensors)
            return _Fast.apply(self, *tensors)  # type: ignore[no-untyped-call]


def spans(x: Tensor) -> Iterator[slice]:
    """Cut the rows of a matrix into chunks; on other devices than a CPU one chunk has all."""
    rows = len(x) if x.device.type != "cpu" else max(1, _CHUNK * len(x) // max(1, x.numel()))
    for start in range(0, len(x), max(1, rows)):
        yield slice(start, min(len(x), start + rows))


def _takes_plain_form(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or first.dtype not in (torch.float32, torch.float64)
        or any(tensor.dtype != first.dtype for tensor in tensors)
        or any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)
    )


class _Fast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, form: TwoForms, *tensors: Tensor | None) -> Result:
        out, kept = form.fast(*tensors)
        ctx.form, ctx.inputs = form, len(tensors)
        ctx.save_for_backward(*tensors, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # looked at once: under activation checkpointing each look computes them again
        tensors, kept = saved[: ctx.inputs], saved[ctx.inputs :]
        needed = ctx.needs_input_grad[1:]
        with without_autocast(grads[0]):
            if torch.is_grad_enabled() or any(_is_batched(grad) for grad in grads):
                return None, *_differentiated(ctx.form.plain, tensors, needed, grads)
            return None, *ctx.form.gradients(grads[0] if len(grads) == 1 else grads, needed, kept, *tensors)


def _is_batched(grad: Tensor) -> bool:
    """Return True for several gradients that torch computes at once, as of a Jacobian: they cannot be written into place."""
    return torch._C._are_functorch_transforms_active() or torch._C._functorch.is_legacy_batchedtensor(grad)


def _differentiated(
    plain: Callable[..., Result], tensors: Sequence[Tensor | None], needed: Sequence[bool], grads: Sequence[Tensor]
) -> Iterator[Tensor | None]:
    """Differentiate the plain form, so that the gradients can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Aliases: one input may have been computed from another, which is no part of this operation's derivative.
        own = [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]
        wanted = [tensor for tensor, is_needed in zip(own, needed, strict=True) if tensor is not None and is_needed]
        computed = iter(torch.autograd.grad(plain(*own), wanted, grads, create_graph=again, allow_unused=True))
    return (next(computed) if is_needed else None for is_needed in needed)
