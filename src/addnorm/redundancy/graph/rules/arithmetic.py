"""Rules for sums and products of two values, and for masking."""

from collections.abc import Hashable
from dataclasses import replace
from itertools import count
from math import inf

import torch

from addnorm.redundancy.graph.rule import Call, rule
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.shift import broadcast, scaled, times, zero_shift
from addnorm.redundancy.graph.value import DataShift, Mask, Output, Value, merged_masks

Number = int | float | bool

_LIFT = 5e3
"""Largest difference of added known numbers after which an entry of -1e4 is still hidden."""


HIDDEN = "masked entries (filled with at most -1e4) get no weight, and no row is fully masked"

_NEXT = count()


def new_origin() -> tuple[Hashable, ...]:
    """Return a new origin for a data-dependent shift."""
    return (next(_NEXT),)


def broadcast_data_shifts(
    data_shifts: tuple[DataShift, ...], dims: int, shape: tuple[int, ...], own: tuple[int, ...]
) -> tuple[DataShift, ...]:
    """Broadcast the data-dependent shifts of an operand: its axes count from the right, and the shifts are constant
    along the axes that it lacks."""
    more = dims - len(own)
    axes = {axis: axis + more for axis in range(len(own)) if own[axis] == shape[axis + more]}
    return tuple(replace(each.rearranged(axes), origin=each.origin) for each in data_shifts)


def _factor(value: Value | Number) -> float | None:
    """The factor, if it is one known number that does not shift."""
    if isinstance(value, int | float):
        return float(value)
    if value.known is not None and not value.moves and value.known.numel() == 1 and not value.known.is_complex():
        return float(value.known.to(torch.float64))
    return None


@rule("add", "sub", "rsub", "__add__", "__sub__", "add_", "sub_")
def add(call: Call, first: Value | Number, second: Value | Number, *, alpha: Number = 1) -> Output:
    """(a + s) + (b + t) = (a + b) + (s + t): the shifts add up, whatever the data."""
    if call.op == "rsub":
        first, second = second, first
    factor = float(alpha) * (1.0 if call.op in ("add", "__add__", "add_") else -1.0)
    a = first.shift if isinstance(first, Value) else zero_shift(())
    b = second.shift if isinstance(second, Value) else zero_shift(())
    dims = len(call.shape)
    left, right = (
        broadcast_data_shifts(value.data_shifts, dims, call.shape, value.shape) if isinstance(value, Value) else ()
        for value in (first, second)
    )
    right = tuple(replace(each, factor=factor * each.factor) for each in right)
    data_shifts = _cancelled(left, right, _widened(first, second, call.shape))
    return Output(plus(a, b, call.shape, factor), data_shifts, masked=_merged_mask(first, second, factor))


def _widened(first: Value | Number, second: Value | Number, shape: tuple[int, ...]) -> list[int] | None:
    """Axes of the sum along which only one operand varies; None if an operand lacks axes."""
    sizes = [value.shape for value in (first, second) if isinstance(value, Value)]
    if any(len(size) != len(shape) for size in sizes):
        return None
    return [axis for axis in range(len(shape)) if any(size[axis] != shape[axis] for size in sizes)]


def _cancelled(
    left: tuple[DataShift, ...], right: tuple[DataShift, ...], widened: list[int] | None
) -> tuple[DataShift, ...]:
    """The data-dependent shifts of a sum. Equal ones of both operands with opposite factors cancel; if one operand has a single
    entry along an axis (a maximum, a mean), only if the shift is constant there."""
    rest = list(right)
    kept = []
    for each in left:
        twin = None
        if each.origin and widened is not None:
            twins = (other for other in rest if other.origin == each.origin and other.factor == -each.factor)
            twin = next((t for t in twins if all(_constant(each, at) or _constant(t, at) for at in widened)), None)
        if twin is None:
            kept.append(each)
        else:
            rest.remove(twin)
    return (*kept, *rest)


def _constant(data_shift: DataShift, axis: int) -> bool:
    return axis in data_shift.axes and all(
        term.reduced[data_shift.axes[axis]] == 1 for term in data_shift.source.terms.values()
    )


def _merged_mask(first: Value | Number, second: Value | Number, factor: float) -> Mask | None:
    """The mask of first + factor second. A shift of the other operand shifts the masked entries too, unless they are infinite.
    Masked entries that are subtracted, or to which large known numbers are added, are no longer hidden."""
    masks = [
        _lifted(value.masked.times(gain), other)
        for value, other, gain in ((first, second, 1.0), (second, first, factor))
        if isinstance(value, Value) and value.masked is not None
    ]
    if not masks:
        return None
    shifts = [shift for mask in masks for shift in mask.shifts]
    for value, other in ((first, second), (second, first)):
        infinite = isinstance(value, Value) and value.masked is not None and value.masked.infinite
        if isinstance(value, Value) and value.masked is not None and not infinite and isinstance(other, Value):
            shifts += [shift for shift in (other.shift, *(each.source for each in other.data_shifts)) if shift]
    chosen_by = masks[0].condition if len(masks) == 1 else ""
    return replace(merged_masks(masks), condition=chosen_by, shifts=tuple(shifts))


def _lifted(mask: Mask, other: Value | Number) -> Mask:
    """The mask after an addition: known numbers may differ so much that a masked entry is no longer hidden."""
    known = other.known if isinstance(other, Value) else None
    if known is None or known.numel() < 2 or mask.infinite:
        return mask
    most, least = float(known.max()), float(known.min())
    return replace(mask, hides=mask.hides and min(most, most - least) <= _LIFT)


@rule("mul", "div", "true_divide", "__mul__", "mul_", "div_", "neg")
def mul(call: Call, first: Value | Number, second: Value | Number = -1.0, **kwargs: object) -> Output:
    """(a + s) c = a c + s c for known c. With data g the shift g s is data-dependent, but constant wherever g and s are.

    The product of two shifting values is not linear in the shift, so one of them must not shift.
    """
    if call.op in ("div", "true_divide", "div_"):
        if kwargs.get("rounding_mode") is not None:
            return _nothing(call, first, second)
        second = _inverse(call, second)
    if not isinstance(first, Value) or (isinstance(second, Value) and not first.moves and second.moves):
        first, second = second, first
    if not isinstance(first, Value):
        return call.unmoved()
    if isinstance(second, Value) and first.moves and second.moves:
        call.demand_unchanged(second)
        first = _renewed(call, first)
    factor = _factor(second)
    masked = first.masked
    if masked is not None and (factor is None or (masked.hides and not masked.times(factor).hides)):
        if first.moves:
            return _nothing(call, first)
        masked = None
    elif masked is not None and factor is not None:
        masked = masked.times(factor)
    dims = len(call.shape)
    data_shifts = broadcast_data_shifts(first.data_shifts, dims, call.shape, first.shape)
    if factor is not None:
        sums = {axis: known * factor for axis, known in first.sums.items()} if first.shape == call.shape else {}
        data_shifts = tuple(replace(each, factor=factor * each.factor) for each in data_shifts) if factor else ()
        return Output(scaled(broadcast(first.shift, call.shape), factor), data_shifts, sums, masked)
    if not isinstance(second, Value):
        return _nothing(call, first)
    more = dims - len(second.shape)
    flat = {axis for axis in range(dims) if axis < more or second.shape[axis - more] == 1}
    data_shifts = tuple(each.rearranged({at: at for at in flat}) for each in data_shifts)
    if second.known is not None:
        return Output(times(first.shift, second.known, call.shape), data_shifts)
    if first.shift:
        source = broadcast(first.shift, call.shape)
        data_shifts = (
            *data_shifts,
            DataShift(source, {axis: axis for axis in flat if call.shape[axis] > 1}, origin=new_origin()),
        )
    return Output(zero_shift(call.shape), data_shifts)


def _renewed(call: Call, value: Value) -> Value:
    return value.updated(call.current)


def _inverse(call: Call, value: Value | Number) -> Value | Number:
    """1 / value; a divisor must not shift."""
    if not isinstance(value, Value):
        return 1.0 / value if value else float("nan")
    call.demand_unchanged(value)
    known = None if value.known is None else 1.0 / value.known.to(torch.float64)
    return Value(value.shape, zero_shift(value.shape), known)


def _nothing(call: Call, *values: object) -> Output:
    call.demand_unchanged(*(value for value in values if isinstance(value, Value)))
    return call.unmoved()


@rule("where", always=True)
def where(call: Call, condition: Value, first: Value | Number, second: Value | Number) -> Output:
    """Entries filled with at most -1e4 have no weight in a softmax, so their shift has no effect.

    Otherwise, if the condition is known, each entry has the shift of its operand; if it is data, both shifts must be equal.
    """
    return _where(call, condition, first, second)


def _where(call: Call, condition: Value, first: Value | Number, second: Value | Number) -> Output:
    call.demand_unchanged(condition)
    first, second = _number(first), _number(second)
    dims = len(call.shape)
    if condition.fact == "nowhere":
        call.assume(HIDDEN)
        return Output(
            broadcast(second.shift, call.shape),
            broadcast_data_shifts(second.data_shifts, dims, call.shape, second.shape),
        )
    sides = ((second, first, condition.name), (first, second, condition.name and f"not {condition.name}"))
    for kept, filled, chosen_by in sides:
        before = kept.masked
        if before is not None and not before.hides and chosen_by and before.condition == chosen_by:
            before = None  # the same entries are overwritten
        if _hides(filled) and not filled.moves and (before is None or before.hides):
            data_shifts = broadcast_data_shifts(kept.data_shifts, dims, call.shape, kept.shape)
            if kept.moves:
                call.assume(HIDDEN)
            infinite = filled.known is not None and bool((filled.known == -inf).all())
            mask = (
                Mask(hides=True, infinite=infinite, condition=chosen_by)
                if before is None
                else replace(before, infinite=infinite and before.infinite, condition="")
            )
            return Output(broadcast(kept.shift, call.shape), data_shifts, masked=mask)
    if any(_uncovered(kept, chosen_by, condition) for kept, _, chosen_by in sides):
        return _nothing(call, first, second)
    for kept, filled, chosen_by in sides:
        if kept.moves and not filled.moves and condition.known is None and chosen_by:
            # An operation that reads the filled entries demands that nothing shifts; one that overwrites them does not.
            mask = Mask(hides=False, condition=chosen_by)
            return Output(
                broadcast(kept.shift, call.shape),
                broadcast_data_shifts(kept.data_shifts, dims, call.shape, kept.shape),
                masked=mask,
            )
    first, second = call.without_data_shifts(first), call.without_data_shifts(second)
    if condition.known is not None:
        chosen = condition.known.to(torch.float64)
        a, b = times(first.shift, chosen, call.shape), times(second.shift, 1 - chosen, call.shape)
        return Output(plus(a, b, call.shape))
    call.demand_zero(plus(first.shift, second.shift, call.shape, -1.0))
    return Output(broadcast(call.current(first.shift), call.shape))


def _uncovered(kept: Value, chosen_by: str, condition: Value) -> bool:
    """True if a value has masked entries that this filling may not overwrite."""
    mask = kept.masked
    return mask is not None and not (
        mask.infinite and chosen_by == condition.name and condition.fact == f"infinite {kept.name}"
    )


def _number(value: Value | Number) -> Value:
    if isinstance(value, Value):
        return value
    return Value((), zero_shift(()), torch.tensor(float(value), dtype=torch.float64))


def _hides(value: Value) -> bool:
    return value.known is not None and value.known.numel() > 0 and bool((value.known <= -1e4).all())


@rule("masked_fill", always=True)
def masked_fill(call: Call, value: Value, mask: Value, fill: Value | Number) -> Output:
    """where(mask, fill, value)."""
    return _where(call, mask, fill, value)


@rule("addcmul")
def addcmul(call: Call, start: Value, first: Value, second: Value, *, value: Number = 1) -> Output:
    """start + value a b: the factors must not shift."""
    call.demand_unchanged(first, second)
    start = call.without_data_shifts(start)
    return Output(broadcast(start.shift, call.shape), masked=start.masked)
