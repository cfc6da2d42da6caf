"""Rules for indexing: known indices apply to the map too; for indices that are data the shift must be the same for all
of them."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.shapes import mapped_by_target, unread_rows_move_with_read_ones
from addnorm.redundancy.graph.shift import Shift, add, broadcast, without_rounding, zero_shift
from addnorm.redundancy.graph.unit_axes import is_repeated
from addnorm.redundancy.graph.value import DataShift, NodeValue, Output


@rule("embedding")
def embedding(call: OpCall, weight: NodeValue, index: NodeValue, *_: object, **__: object) -> Output:
    """Row i of W + S is W_i + S_i. The padding row is read like any other; only its gradient is zero.

    If the indices are data, the output shifts by the first row's shift, which is known, plus the difference between the
    selected row's shift and the first row's, which is data-dependent but constant along the columns if all these
    differences are.
    """
    weight = call.without_data_shifts(weight)
    if index.known is not None:
        read = index.known.reshape(-1).to(torch.int64)
        shift = unread_rows_move_with_read_ones(call, weight.shift, 0, read)
        return Output(reshaped(selected(shift, 0, read), call.shape))
    if not weight.shift:
        return call.unmoved()
    # Any row may be chosen. Its shift is the first row's plus its difference from that: the former is known, the latter
    # is data-dependent, and zero if all rows shift alike.
    row = reshaped(selected(weight.shift, 0, torch.tensor([0])), weight.shape[1:])
    apart = call.current(without_rounding(add(weight.shift, row, weight.shape, -1.0)))
    data_shifts = (DataShift(apart, {len(call.shape) - 1: 1}),) if apart else ()
    return Output(broadcast(row, call.shape), data_shifts)


@rule("index")
def index(call: OpCall, value: NodeValue, indices: Sequence[NodeValue | None]) -> Output:
    """Entries at known indices; if the indices are data, the shift must be constant along the indexed axes."""
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    known = [each.known if each is not None else None for each in indices]
    if all(known[axis] is not None for axis in axes):
        only = known[axes[0]]
        if len(axes) == 1 and only is not None and only.dtype != torch.bool and not value.data_shifts:
            read = only.reshape(-1) % value.shape[axes[0]]
            shift = value.shift
            if value.known is not None:
                shift = unread_rows_move_with_read_ones(call, shift, axes[0], read)
            return Output(reshaped(selected(shift, axes[0], read), call.shape))
        return mapped_by_target(call, value, (known,))
    value = call.without_data_shifts(value)
    if axes != list(range(len(axes))):
        call.demand_unchanged(value)
        return call.unmoved()
    row = call.demand_constant(value.shift, axes)
    for axis in axes:
        row = selected(row, axis, torch.tensor([0]))
    row = reshaped(row, value.shape[len(axes) :])
    return Output(broadcast(row, call.shape))


@rule("take_along_dim", axial=True)
def take_along_dim(call: OpCall, value: NodeValue, index: NodeValue, dim: int | None = None) -> Output | list[Output]:
    """As `gather` if both have the same sizes except along the axis; without an axis nothing may shift."""
    axis = None if dim is None else dim % len(value.shape)
    same = len(index.shape) == len(value.shape) and all(
        at == axis or size == other for at, (size, other) in enumerate(zip(value.shape, index.shape, strict=True))
    )
    if axis is None or not same:
        call.demand_unchanged(value)
        return call.unmoved()
    arguments = (call.arguments[0], axis, *call.arguments[1:2])
    return gather(replace(call, target=torch.ops.aten.gather.default, arguments=arguments), value, axis, index)


@rule("gather", axial=True)
def gather(call: OpCall, value: NodeValue, dim: int, index: NodeValue, *_: object, **__: object) -> Output:
    """Entries of one axis: a shift that is constant along it is the same whichever entry is selected.

    If the indices are data, a shift must be constant; known indices apply to the map. Data-dependent shifts must be
    constant in both cases. If the indices are repeated along another axis (one choice per token, for all channels), the
    selected entry's difference from the first is data-dependent, but constant along that axis if all differences are.
    """
    axis = dim % len(value.shape)
    # An index that is shorter than the value along another axis reads the first entries there; the shift must not tell
    # them from the others.
    cut = [at for at in range(len(value.shape)) if at != axis and value.shape[at] != call.shape[at]]
    if cut and value.data_shifts:
        call.demand_unchanged(value)
        return call.unmoved()
    data_shifts = call.demand_constant_value(
        NodeValue(value.shape, zero_shift(value.shape), data_shifts=value.data_shifts), [axis]
    ).data_shifts
    value = NodeValue(value.shape, call.current(value.shift), value.known)
    if index.known is not None:
        return Output(mapped_by_target(call, value, (dim, index.known)).shift, data_shifts)
    flat = () if cut else [at for at in range(len(value.shape)) if at != axis and is_repeated(call.arguments[2:3], at)]
    if flat and value.shift:
        one = broadcast(selected(value.shift, axis, torch.tensor([0])), value.shape)
        apart = call.current(without_rounding(add(value.shift, one, value.shape, -1.0)))
        if apart:
            data_shifts = (*data_shifts, DataShift(apart, {at: at for at in flat}))
        return Output(Shift(call.shape, selected(value.shift, axis, torch.tensor([0])).terms), data_shifts)
    one = call.demand_constant(value.shift, [axis, *cut])
    for each in (axis, *cut):
        one = selected(one, each, torch.tensor([0]))
    return Output(broadcast(one, call.shape), data_shifts)
