"""Rules for softmax and its functions, in which a shift that is constant along the axis cancels."""

from dataclasses import replace
from math import inf, isinf
from typing import cast

import torch

from addnorm.redundancy.execution.operation_names import LOG_SOFTMAXES, SOFTMAXES
from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.arithmetic import add
from addnorm.redundancy.graph.shift import Shift, broadcast, zero_shift
from addnorm.redundancy.graph.value import Mask, NodeValue, Output


@rule(*SOFTMAXES, always=True, axial=True, masks=True)
def softmax(call: OpCall, value: NodeValue, dim: int, *_: object, **__: object) -> Output:
    """softmax(x + c 1) = softmax(x), so a shift that is constant along the axis has no effect; the rows sum to one."""
    # Hidden entries keep weight zero whatever they hold, so only those that are seen must shift alike; entries with
    # other fills are seen, and do not shift with the rest.
    if value.seen_by_softmax or not call.is_trivial(value, dim):
        call.demand_unchanged(value) if value.seen_by_softmax else call.demand_constant_value(value, [dim])
    axis = dim % len(call.shape)
    reach = value.masked.reach if value.masked is not None else {}
    return Output(
        zero_shift(call.shape),
        sums={axis: torch.ones((1,) * len(call.shape), dtype=torch.float64)},
        support={axis: reach[axis]} if axis in reach else {},
    )


@rule(*LOG_SOFTMAXES, axial=True)
def log_softmax(call: OpCall, value: NodeValue, dim: int, *_: object, **__: object) -> Output:
    """log_softmax(x + c 1) = log_softmax(x)."""
    if not call.is_trivial(value, dim):
        call.demand_constant_value(value, [dim])
    return call.unmoved()


@rule("logsumexp", axial=True)
def logsumexp(call: OpCall, value: NodeValue, dim: list[int], keepdim: bool = False) -> Output:
    """logsumexp(x + c 1) = logsumexp(x) + c."""
    value = call.demand_constant_value(call.without_data_shifts(value), dim)
    return Output(first_entries(value.shift, dim, call.shape))


def first_entries(shift: Shift, axes: list[int], shape: tuple[int, ...]) -> Shift:
    """Reduce axes along which a shift is constant to one entry, or remove them."""
    for axis in axes:
        shift = selected(shift, axis % len(shift.shape), torch.tensor([0]))
    return reshaped(shift, shape)


@rule("cross_entropy_loss")
def cross_entropy(
    call: OpCall, value: NodeValue, target: NodeValue, weight: NodeValue | None = None, *_: object, **__: object
) -> Output:
    """A function of log_softmax over the classes. Targets are class indices or probabilities, both of which multiply
    log_softmax."""
    call.demand_unchanged(target, weight)
    classes = 0 if len(value.shape) == 1 else 1
    call.demand_constant_value(value, [classes])
    return call.unmoved()


@rule("amax", "max", "topk", "sort", "amin", "min", "argmax", "argmin", "argsort", "cummax", axial=True, masks=True)
def largest(call: OpCall, value: NodeValue, *args: object, **kwargs: object) -> list[Output]:
    """max(x + c 1) = max(x) + c, and the indices stay. With two operands or without an axis nothing may shift."""
    dim = (
        args[1] if call.op == "topk" and len(args) > 1 else args[0] if args and call.op != "topk" else kwargs.get("dim")
    )
    if call.op in ("topk", "sort", "argsort") and dim is None:
        dim = -1
    if isinstance(dim, bool) or not isinstance(dim, int | list) or (isinstance(dim, list) and not dim):
        call.demand_unchanged(value, *(each for each in args if isinstance(each, NodeValue)))
        return call.all_unmoved()
    axes = [dim] if isinstance(dim, int) else list(dim)
    if value.seen_by_softmax or (value.masked and call.op in ("min", "amin", "argmin")):
        call.demand_unchanged(value)
        return call.all_unmoved()
    value = call.demand_constant_value(value, axes)
    outs = call.all_unmoved()
    if not call.op.startswith("arg"):
        one = value.shift
        axes = [axis % len(value.shape) for axis in axes]
        for axis in axes:
            one = selected(one, axis, torch.tensor([0]))
        kept = len(call.shape) == len(value.shape)
        after = [axis for axis in range(len(value.shape)) if kept or axis not in axes]
        # Entries that shift by one number keep their order, so the largest one, and its index, stay the same entry.
        data_shifts = tuple(each.rearranged({axis: at for at, axis in enumerate(after)}) for each in value.data_shifts)
        masked = None
        if kept and call.op in ("amax", "amin", "max", "min", "topk", "sort"):
            # One entry of shifts that are equal along the axes is the same shift.
            data_shifts = tuple(
                replace(each, origin=old.origin) for each, old in zip(data_shifts, value.data_shifts, strict=True)
            )
        if value.masked is not None and (not kept or call.op in ("topk", "sort")):
            masked = value.masked.without_condition()
        shift = broadcast(one, call.shape) if kept else reshaped(one, call.shape)
        outs[0] = Output(shift, data_shifts, masked=masked, fact="maximum" if call.op in ("amax", "max") else "")
    return outs


@rule("eq", "ne", "gt", "ge", "lt", "le", "isinf", "isneginf", "isposinf", "isfinite", "isnan", masks=True)
def compare(call: OpCall, value: NodeValue, *others: object) -> Output:
    """A comparison with infinity does not change under finite shifts, and one of two values does not if both shift alike.

    A maximum is minus infinity only if the whole row is masked.
    """
    if call.op.startswith("is") or (len(others) == 1 and isinstance(others[0], float) and isinf(others[0])):
        if (call.op != "eq" or others[0] != -inf) and call.op != "isneginf":
            return call.unmoved()
        return replace(call.unmoved(), fact="nowhere" if value.fact == "maximum" else f"infinite {value.name}")
    other = others[0] if len(others) == 1 else None
    if isinstance(other, NodeValue) and all(
        each.masked is None or _never_moves(each.masked) for each in (value, other)
    ):
        # x < y depends on x - y alone. What does not cancel in the difference may tip a comparison, however small it
        # is.
        apart = cast(Output, add(replace(call, op="sub"), value, other))
        call.demand_unchanged(NodeValue(call.shape, apart.shift, data_shifts=apart.data_shifts))
        return call.unmoved()
    call.demand_unchanged(value, *(each for each in others if isinstance(each, NodeValue)))
    return call.unmoved()


def _never_moves(mask: Mask) -> bool:
    """True if the masked entries are below all others whatever shifts."""
    return mask.infinite and not mask.shifts
