"""Rules for sums and means."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from addnorm.redundancy.graph.reshaping import reshaped, summed
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.shift import scaled
from addnorm.redundancy.graph.value import DataShift, NodeValue, Output


@rule("sum", "mean", axial=True)
def total(
    call: OpCall, value: NodeValue, dim: int | Sequence[int] | None = None, keepdim: bool = False, **_: object
) -> Output:
    """sum(x + s) = sum(x) + sum(s)."""
    dims = len(value.shape)
    axes = (
        list(range(dims))
        if dim is None or dim == []
        else [dim % dims]
        if isinstance(dim, int)
        else [d % dims for d in dim]
    )
    after = {
        axis: axis if keepdim else axis - sum(each < axis for each in axes) for axis in range(dims) if axis not in axes
    }
    data_shifts = tuple(_summed(each, axes, after, call.op == "mean" and keepdim) for each in value.data_shifts)
    if not axes:
        return Output(value.shift, data_shifts)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    shift = reshaped(summed(value.shift, axes, shape), call.shape)
    return Output(
        scaled(shift, 1.0 / prod(value.shape[axis] for axis in axes)) if call.op == "mean" else shift, data_shifts
    )


def _summed(given: DataShift, axes: Sequence[int], after: Mapping[int, int], level: bool) -> DataShift:
    """The sum of a data-dependent shift: an axis with one unknown factor for all entries sums up in the source.

    Args:
        given: the shift.
        axes: the summed axes.
        after: the other axes, old -> new.
        level: True for a mean that keeps its axes, which leaves a constant shift as it is.
    """
    if level and all(given.is_constant(axis) for axis in axes):
        return replace(given.rearranged({axis: axis for axis in (*after, *axes)}), origin=given.origin)
    out = given.rearranged(after)
    # The shift is f s with one unknown f along a named axis: its sum is f times the sum of s. Along other axes f
    # varies, and nothing is known of the sum but that it vanishes with s.
    own = [given.axes[axis] for axis in axes if axis in given.axes]
    if not own or given.relaxation is not None:
        return out
    shape = tuple(1 if at in own else size for at, size in enumerate(given.source.shape))
    source, product = summed(given.source, own, shape), given.product
    if product is not None and all(axis in given.axes and axis in product.source_axes for axis in axes):
        product = product.rearranged(after, source)
    else:
        product = None
    return replace(out, source=source, product=product)
