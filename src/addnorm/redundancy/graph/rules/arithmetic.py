"""Rules for sums and products of two values, and for masking."""

from collections.abc import Hashable
from dataclasses import replace
from itertools import count

import torch

from addnorm.redundancy.execution.operation_names import MASKED
from addnorm.redundancy.graph.like_factors import Product, merged_source, moves_last, number_of, of, shifts_of
from addnorm.redundancy.graph.linear_factors import DataTerm, met
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.shift import Shift, broadcast, scaled, times, without_rounding, zero_shift
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.value import DataShift, Mask, NodeValue, Output, Zeroed, merged_masks

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
    placed = (each.rearranged(axes, "broadcast") for each in data_shifts)
    return tuple(replace(new, origin=old.origin) for new, old in zip(placed, data_shifts, strict=True))


def times_number(data_shifts: tuple[DataShift, ...], factor: float) -> tuple[DataShift, ...]:
    """Multiply data-dependent shifts by a number."""
    return tuple(replace(each, factor=factor * each.factor) for each in data_shifts) if factor else ()


@rule("add", "sub", "rsub", "__add__", "__sub__", "add_", "sub_", masks=True)
def add(call: OpCall, first: NodeValue | Number, second: NodeValue | Number, *, alpha: Number = 1) -> Output:
    """(a + s) + (b + t) = (a + b) + (s + t): the shifts add up, whatever the data."""
    if call.op == "rsub":
        first, second = second, first
    factor = float(alpha) * (1.0 if call.op in ("add", "__add__", "add_") else -1.0)
    first, second = (
        _hidden_zeros(call, first, second, factor),
        _hidden_zeros(call, second, first, 1.0) if factor == 1.0 else second,
    )
    a = first.shift if isinstance(first, NodeValue) else zero_shift(())
    b = second.shift if isinstance(second, NodeValue) else zero_shift(())
    dims = len(call.shape)
    left, right = (
        broadcast_data_shifts(value.data_shifts, dims, call.shape, value.shape) if isinstance(value, NodeValue) else ()
        for value in (first, second)
    )
    right = times_number(right, factor)
    data_shifts, known = merged(_cancelled(left, right, _widened(first, second, call.shape)), call.shape)
    shift = plus(plus(a, b, call.shape, factor), known, call.shape)
    return Output(shift, data_shifts, masked=_merged_mask(first, second, factor))


def _hidden_zeros(
    call: OpCall, value: NodeValue | Number, other: NodeValue | Number, factor: float
) -> NodeValue | Number:
    """A value multiplied by zeros and ones, to which at most -1e4 is added where the zeros are: these entries are known and
    hidden, and in all others the shift is that before the product."""
    if not isinstance(value, NodeValue) or not isinstance(other, NodeValue) or value.shape != call.shape:
        return value
    if other.known is None or other.moves or not any(each.zeroed for each in value.data_shifts):
        return value
    if value.masked is not None or value.shift:
        return value
    added = factor * other.known.expand(call.shape)
    patterns = [each.zeroed.entries for each in value.data_shifts if each.zeroed is not None]
    if len(patterns) < len(value.data_shifts) or not all(bool((added[each] <= MASKED).all()) for each in patterns):
        return value
    call.assume(HIDDEN)
    data_shifts = tuple(
        replace(each, axes=each.zeroed.axes, zeroed=None) for each in value.data_shifts if each.zeroed is not None
    )
    return replace(value, data_shifts=data_shifts, masked=Mask(hides=True))


def _widened(first: NodeValue | Number, second: NodeValue | Number, shape: tuple[int, ...]) -> list[int] | None:
    """Axes of the sum along which only one operand varies; None if an operand lacks axes."""
    sizes = [value.shape for value in (first, second) if isinstance(value, NodeValue)]
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
            twin = next((t for t in twins if all(each.is_constant(at) or t.is_constant(at) for at in widened)), None)
        if twin is None:
            kept.append(each)
        else:
            rest.remove(twin)
    return (*kept, *rest)


def merged(data_shifts: tuple[DataShift, ...], shape: tuple[int, ...]) -> tuple[tuple[DataShift, ...], Shift]:
    """The data-dependent shifts of a sum, with those that have the same factor as one; and what becomes a known shift, where
    factors are linear maps, with constants, of one earlier value."""
    kept: list[DataShift] = []
    known = zero_shift(shape)
    for each in data_shifts:
        for at, other in enumerate(kept):
            if each.product is None or other.product is None or each.relaxation or other.relaxation:
                continue
            terms = [DataTerm(one.source, one.product, one.factor) for one in (other, each) if one.product is not None]
            common = met(terms[0], terms[1], shape)
            # `axes` promises: constant in the source, so constant in the shift. That holds only where the factor does
            # not vary.
            if common is None and (
                each.axes.keys() != other.axes.keys() or each.axes.keys() & set(other.product.factor_axes)
            ):
                continue
            one, two, constants = common or (terms[0], terms[1], ())
            both = merged_source((one.product, two.product), (one.source, two.source), (one.factor, two.factor), shape)
            if both is not None:
                source, product = both
                free = set(range(len(shape))) - set(product.factor_axes)
                axes = {axis: product.source_axes.index(axis) for axis in (free if common else each.axes)}
                kept[at] = DataShift(without_rounding(source), axes, origin=new_origin(), product=product)
                for factor, constant in constants:
                    known = plus(known, constant, shape, factor)
                break
        else:
            kept.append(each)
    return tuple(each for each in kept if each.source), known


def _merged_mask(first: NodeValue | Number, second: NodeValue | Number, factor: float) -> Mask | None:
    """The mask of first + factor second. A shift of the other operand shifts the masked entries too, unless they are infinite.
    Masked entries that are subtracted, or to which large known numbers are added, are no longer hidden."""
    masks = [
        _lifted(value.masked.times(gain), other)
        for value, other, gain in ((first, second, 1.0), (second, first, factor))
        if isinstance(value, NodeValue) and value.masked is not None
    ]
    if not masks:
        return None
    shifts = [shift for mask in masks for shift in mask.shifts]
    for value, other in ((first, second), (second, first)):
        # A finite fill moves with what is added to it, and stays hidden only as long as that is small; the sum of the
        # shifts is remembered for readers that compare entries. Minus infinity absorbs any of them.
        infinite = isinstance(value, NodeValue) and value.masked is not None and value.masked.infinite
        if isinstance(value, NodeValue) and value.masked is not None and not infinite and isinstance(other, NodeValue):
            shifts += [shift for shift in (other.shift, *(each.source for each in other.data_shifts)) if shift]
    chosen_by = masks[0].condition if len(masks) == 1 else ""
    return replace(merged_masks(masks), condition=chosen_by, shifts=tuple(shifts))


def _lifted(mask: Mask, other: NodeValue | Number) -> Mask:
    """The mask after an addition: known numbers may differ so much that a masked entry is no longer hidden."""
    known = other.known if isinstance(other, NodeValue) else None
    if known is None or known.numel() < 2 or mask.infinite:
        return mask
    most, least = float(known.max()), float(known.min())
    return replace(mask, hides=mask.hides and min(most, most - least) <= _LIFT)


@rule("mul", "div", "__mul__", "mul_", "div_", "neg", masks=True)
def mul(call: OpCall, first: NodeValue | Number, second: NodeValue | Number = -1.0, **_: object) -> Output:
    """(a + s) c = a c + s c for known c. With data g the shift g s is data-dependent, but constant wherever g and s are.

    If both factors shift, (x + s)(y + t) - x y = s (y + t) + x t; if y is known, it is s y + (x + s) t. The terms with data are
    data-dependent, and each vanishes with its own source.
    """
    if call.op in ("div", "div_"):
        second = _inverse(call, second)
    if not isinstance(first, NodeValue) or (isinstance(second, NodeValue) and not first.moves and second.moves):
        first, second = second, first
    if not isinstance(first, NodeValue):
        return call.unmoved()
    if isinstance(second, NodeValue) and first.moves and second.moves:
        if first.masked is None and second.masked is None:
            return _both(call, first, second)
        call.demand_unchanged(second)
        # Masked entries do not shift as `shift` says, so the two terms of `_both` are wrong for them: one factor is
        # held.
        first = first.updated(call.current)
    factor = number_of(second)
    masked = first.masked
    if masked is not None and (factor is None or (masked.hides and not masked.times(factor).hides)):
        if first.moves:
            return nothing(call, first)
        masked = None
    elif masked is not None and factor is not None:
        masked = masked.times(factor)
    if factor is not None:
        data_shifts = broadcast_data_shifts(first.data_shifts, len(call.shape), call.shape, first.shape)
        sums = {axis: known * factor for axis, known in first.sums.items()} if first.shape == call.shape else {}
        shift = scaled(broadcast(first.shift, call.shape), factor)
        return Output(shift, times_number(data_shifts, factor), sums, masked)
    if not isinstance(second, NodeValue):
        return nothing(call, first)
    return _times(call, first, second)


def _both(call: OpCall, first: NodeValue, second: NodeValue) -> Output:
    """The product of two factors that shift."""
    if second.known is None:
        first, second = second, first
    # In s (y + t) + x t one factor counts after its move. Which one is a convention; two products with a common factor
    # can be compared only if both follow the same one.
    last = second.known is None and moves_last(first, second)
    left = _times(call, first, second, moved=last)
    right = _times(call, second, replace(first, known=None), moved=not last)
    return Output(plus(left.shift, right.shift, call.shape), (*left.data_shifts, *right.data_shifts))


def _times(call: OpCall, value: NodeValue, factor: NodeValue, *, moved: bool = False) -> Output:
    """The shifts of a value times a factor, or times the factor after its own shift if `moved`. A factor offset + scale f
    counts as f, plus the shift times the offset."""
    dims = len(call.shape)
    more = dims - len(factor.shape)
    flat = {axis for axis in range(dims) if axis < more or factor.shape[axis - more] == 1}
    given = broadcast_data_shifts(value.data_shifts, dims, call.shape, value.shape)
    data_shifts = tuple(each.rearranged({at: at for at in flat}) for each in given)
    if factor.known is not None:
        if given and value.shape == call.shape and (zeros := _zeros(factor.known, call.shape)) is not None:
            data_shifts = tuple(
                replace(each, zeroed=Zeroed(zeros, dict(old.axes)))
                for each, old in zip(data_shifts, given, strict=True)
            )
        return Output(times(value.shift, factor.known, call.shape), data_shifts)
    if not value.shift:
        return Output(zero_shift(call.shape), data_shifts)
    source = broadcast(value.shift, call.shape)
    axes = {axis: axis for axis in flat if call.shape[axis] > 1}
    same = of(factor)
    product, scale, offset = None, 1.0, 0.0
    # A factor with an axis of one entry that the output has longer is not described by labels, so no product is
    # recorded.
    whole = not any(at >= more and call.shape[at] > 1 for at in flat)
    if same.name and same.scale and whole and (axes or same.name in call.shared):
        places = [0] * len(same.order)
        for at, own in enumerate(same.order):
            places[own] = more + at
        product = Product(same.name, tuple(places), tuple(range(dims)), shifts_of(factor) if moved else (), same.image)
        scale, offset = same.scale, same.offset
    data_shifts = (*data_shifts, DataShift(source, axes, origin=new_origin(), factor=scale, product=product))
    return Output(scaled(source, offset), data_shifts)


def _zeros(known: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Entries at which known zeros and ones are zero; None for other numbers."""
    zeros = known == 0
    return zeros.expand(shape) if bool(zeros.any()) and bool((zeros | (known == 1)).all()) else None


def _inverse(call: OpCall, value: NodeValue | Number) -> NodeValue | Number:
    """1 / value; a divisor must not shift."""
    if not isinstance(value, NodeValue):
        return 1.0 / value if value else float("nan")
    call.demand_unchanged(value)
    # 1 / (x + s) is no affine function of s, so a divisor is not allowed to shift.
    known = None if value.known is None else 1.0 / value.known.to(torch.float64)
    return NodeValue(value.shape, zero_shift(value.shape), known)


def nothing(call: OpCall, *values: object) -> Output:
    """Demand that no value shifts; then the result does not."""
    call.demand_unchanged(*(value for value in values if isinstance(value, NodeValue)))
    return call.unmoved()


@rule("addcmul", masks=True)
def addcmul(call: OpCall, start: NodeValue, first: NodeValue, second: NodeValue, *, value: Number = 1) -> Output:
    """start + value a b: the factors must not shift."""
    call.demand_unchanged(first, second)
    start = call.without_data_shifts(start)
    return Output(broadcast(start.shift, call.shape), masked=start.masked)
