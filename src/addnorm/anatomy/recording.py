"""Record of one forward pass: calls of modules, additions, and attention, in order.

Tensors are recognised by their memory, also in another shape, so the record keeps all of them alive until it is dropped.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from addnorm.anatomy.attention import AttentionFollower, RecordedAttention

_ADDITIONS = {torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.add_, Tensor.__iadd__}
_IN_PLACE = {Tensor.add_, Tensor.__iadd__}
_PRODUCT_NAMES = (
    "matmul __matmul__ __rmatmul__ mm bmm addmm baddbmm inner tensordot einsum linear bilinear conv1d "
    "_grouped_mm grouped_mm"
)
# Transformers multiplies all experts of a mixture in one grouped product, which not every torch has.
PRODUCTS = {
    getattr(place, name) for place in (torch, Tensor, F) for name in _PRODUCT_NAMES.split() if hasattr(place, name)
}
"""Functions in which a parameter is a factor."""


@dataclass(eq=False, kw_only=True)
class ModuleCall:
    """A call of a module, without the root."""

    path: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    """Tensors among the arguments, those by name last."""
    began: int
    """Number of events before it."""
    outputs: tuple[Tensor, ...] = ()
    ended: int = -1

    @property
    def input(self) -> Tensor | None:
        """The first tensor among the arguments."""
        return self.inputs[0] if self.inputs else None

    @property
    def output(self) -> Tensor | None:
        """The output, or the first tensor in it."""
        return self.outputs[0] if self.outputs else None


@dataclass(eq=False, kw_only=True)
class Addition:
    """left + right = out, of one shape."""

    left: Tensor
    right: Tensor
    out: Tensor
    at: int
    before: Tensor | None = None
    """Copy of `left` before an addition in place."""

    def other(self, operand: Tensor) -> Tensor:
        """The operand that is not this one."""
        return self.right if same(self.left, operand) else self.left


@dataclass(eq=False)
class PassEvents:
    """Events of one pass."""

    calls: list[ModuleCall] = field(default_factory=list)
    additions: list[Addition] = field(default_factory=list)
    follower: AttentionFollower = field(default_factory=AttentionFollower)
    clock: int = 0

    @property
    def attentions(self) -> list[RecordedAttention]:
        """Every attention, in order."""
        return self.follower.attentions

    def tick(self) -> int:
        self.clock += 1
        return self.clock


def record(model: nn.Module, forward: Callable[[], Any]) -> tuple[PassEvents, Any]:
    """Run a pass and record it.

    Returns:
        The record, and what the pass returned.
    """
    events = PassEvents()
    open_calls: list[ModuleCall] = []
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if path:
                before = partial(_begin, events, open_calls, path)
                after = partial(_end, events, open_calls)
                # Hooks go with the stack, also when the pass raises: the model is the user's.
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
        stack.enter_context(_Recorder(events))
        result = forward()
    return events, result


def _begin(
    events: PassEvents, open_calls: list[ModuleCall], path: str, module: nn.Module, args: Any, kwargs: Any
) -> None:
    call = ModuleCall(path=path, module=module, inputs=tensors((args, list(kwargs.values()))), began=events.tick())
    events.calls.append(call)
    open_calls.append(call)


def _end(events: PassEvents, open_calls: list[ModuleCall], module: nn.Module, args: Any, output: Any) -> None:
    call = open_calls.pop()
    call.outputs, call.ended = tensors(output), events.tick()


def tensors(value: Any) -> tuple[Tensor, ...]:
    """The tensors of a value, of the tuples, lists and mappings in it, in order."""
    if isinstance(value, Tensor):
        return (value,)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return tuple(tensor for item in items for tensor in tensors(item))


def same(left: Tensor, right: Tensor) -> bool:
    """True for one tensor, and for two views of all its entries."""
    return left is right or (left.numel() == right.numel() and left.data_ptr() == right.data_ptr())


class _Recorder(TorchFunctionMode):
    def __init__(self, events: PassEvents) -> None:
        super().__init__()
        self.events = events

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        pair = _pair(args, kwargs) if func in _ADDITIONS else None
        # In place the left operand is gone afterwards, and it may be the stream before the joint.
        before = pair[0].clone() if pair and func in _IN_PLACE else None
        out = func(*args, **kwargs)
        if pair and isinstance(out, Tensor):
            left, right = pair
            self.events.additions.append(
                Addition(left=left, right=right, out=out, at=self.events.tick(), before=before)
            )
        # After the call, so that the result has its identity; `tick` orders it behind additions of the same call.
        self.events.follower.follow(func, args, kwargs, out, self.events.tick())
        return out


def _pair(args: Any, kwargs: Any) -> tuple[Tensor, Tensor] | None:
    operands = (*args, kwargs["other"]) if "other" in kwargs else args
    if len(operands) != 2 or not all(isinstance(operand, Tensor) for operand in operands):
        return None
    left, right = operands
    return (left, right) if left.shape == right.shape and left.dim() in (2, 3) and not kwargs.get("alpha") else None
