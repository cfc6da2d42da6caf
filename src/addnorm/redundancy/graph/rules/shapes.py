"""Rules for operations that only rearrange numbers, which apply to the shift as they are."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf

import torch

from addnorm.redundancy.execution.operation_names import COPIES, MASKED, PERMUTING, VIEWS
from addnorm.redundancy.graph.reshaping import axes_after, concatenated, groups, kept_axes, permuted, reshaped, selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.arithmetic import HIDDEN, merged
from addnorm.redundancy.graph.shift import Shift, broadcast, mapped, zero_shift
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.value import (
    DataShift,
    JoinedPart,
    Mask,
    NodeValue,
    Output,
    Plane,
    merged_masks,
    values_in,
)

Move = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]
"""Rearranges known numbers, expanded except for one axis of size 1, to a new shape with size 1 at the same axis."""


def rearranged(
    call: OpCall,
    value: NodeValue,
    op: Callable[[Shift], Shift],
    axes: Mapping[int, int],
    at: int = 0,
    sums: Move | None = None,
    step: Hashable = None,
) -> Output:
    """Rearrange a value. Data-dependent shifts, sums and planes stay known along the surviving axes.

    Args:
        call: the call.
        value: the value.
        op: rearranges a shift.
        axes: surviving axes, old -> new.
        at: index of the output.
        sums: rearranges known sums; None if they are lost.
        step: identifies the rearrangement if it depends on nothing else.
    """
    shift = op(value.shift) if value.shift else zero_shift(call.shapes[at])
    data_shifts = tuple(each.rearranged(axes, step) for each in value.data_shifts)
    kept = {}
    for axis, known in value.sums.items():
        if axis in axes and sums is not None:
            wide = known.expand(_unit(value.shape, axis))
            kept[axes[axis]] = sums(wide, _unit(call.shapes[at], axes[axis]))
    masked = value.masked.without_condition() if value.masked is not None else None
    plane = value.plane
    whole = plane is not None and plane.axis in axes and call.shapes[at][axes[plane.axis]] == value.shape[plane.axis]
    return Output(shift, data_shifts, kept, masked, Plane(axes[plane.axis], plane.normals) if plane and whole else None)


def _unit(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if at == axis else size for at, size in enumerate(shape))


def _same(dims: int) -> dict[int, int]:
    return {axis: axis for axis in range(dims)}


@rule(*VIEWS, masks=True)
def view(call: OpCall, value: NodeValue, *_: object, **__: object) -> Output:
    """The same numbers in the same order have the same shifts in the same order, and facts along an axis that stays one."""
    axes = kept_axes(value.shape, call.shape)
    step = ("view", call.shape)
    out = rearranged(call, value, lambda shift: reshaped(shift, call.shape), axes, sums=torch.Tensor.reshape, step=step)
    pairs = zip(value.data_shifts, out.data_shifts, strict=True)
    return replace(out, data_shifts=tuple(_regrouped(old, new, value.shape, call.shape) for old, new in pairs))


def _regrouped(given: DataShift, seen: DataShift, old: tuple[int, ...], new: tuple[int, ...]) -> DataShift:
    """A data-dependent shift that is constant along all axes of a group is constant along those that the group becomes."""
    more: list[int] = []
    for before, after in groups(old, new):
        # A shift that is constant along every axis of a group is one number there, however the group is cut into new
        # axes. The source gets axes of one entry that say so.
        wide, made = [at for at in before if old[at] > 1], [at for at in after if new[at] > 1]
        if len(wide) + len(made) > 2 and all(given.is_constant(at) for at in wide):
            more += made
    if not more:
        return seen
    source = broadcast(seen.source, (*(new[at] for at in more), *seen.source.shape))
    axes = {axis: own + len(more) for axis, own in seen.axes.items()} | {axis: at for at, axis in enumerate(more)}
    product = seen.product and replace(seen.product, source_axes=(*more, *seen.product.source_axes))
    return replace(seen, source=source, axes=axes, product=product)


@rule(*PERMUTING, masks=True)
def permute(call: OpCall, value: NodeValue, *args: object, **kwargs: object) -> Output:
    """The same numbers with permuted axes."""
    order = axes_after(call.target, len(value.shape), *args, **kwargs)
    axes = {old: new for new, old in enumerate(order)}
    step = ("permute", *order)
    return rearranged(
        call, value, lambda shift: permuted(shift, order), axes, sums=lambda known, _: known.permute(order), step=step
    )


@rule(*COPIES, masks=True)
def copy(call: OpCall, value: NodeValue, *args: object, **__: object) -> Output:
    """The same numbers: a cast to another floating-point type counts as exact; a value cast to integers must not shift."""
    if not call.floating:
        call.demand_unchanged(value)
        return call.unmoved()
    return Output(value.shift, value.data_shifts, value.sums, value.masked, value.plane)


@rule("expand", "expand_as", "broadcast_to", masks=True)
def expand(call: OpCall, value: NodeValue, *_: object, **__: object) -> Output:
    """Copies along new or unit axes, along which the shift is constant."""
    more = len(call.shape) - len(value.shape)
    axes = {axis: axis + more for axis in range(len(value.shape)) if value.shape[axis] == call.shape[axis + more]}
    step = ("expand", call.shape)
    return rearranged(
        call, value, lambda shift: broadcast(shift, call.shape), axes, sums=torch.Tensor.expand, step=step
    )


@rule("copy", masks=True)
def overwrite(call: OpCall, value: NodeValue, source: NodeValue, *_: object, **__: object) -> Output | list[Output]:
    """The previous numbers are overwritten: numbers and shift are those of the source, broadcast."""
    if not call.floating:
        call.demand_unchanged(source)
        return call.unmoved()
    return expand(call, source)


def _pick(call: OpCall, value: NodeValue, axis: int, index: torch.Tensor, at: int = 0, drop: bool = False) -> Output:
    """Select entries of one axis; sums along that axis are lost."""
    dims = len(value.shape)
    axis %= dims
    axes = {old: old - (drop and old > axis) for old in range(dims) if not (drop and old == axis)}

    def op(shift: Shift) -> Shift:
        part = selected(shift, axis, index)
        return reshaped(part, call.shapes[at]) if drop else part

    def narrowed(known: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return known.index_select(axis, index).reshape(shape)

    axes_kept = {old: new for old, new in axes.items() if old != axis}
    plane = value.plane if value.plane is not None and value.plane.axis != axis else None
    out = rearranged(call, replace(value, sums={}, plane=plane), op, axes, at)
    sums = rearranged(
        call, NodeValue(value.shape, zero_shift(value.shape), sums=value.sums), op, axes_kept, at, narrowed
    ).sums
    # The weights of a softmax sum to one over the whole axis only. A selection keeps the sum if it has every entry with
    # weight exactly once: the padding that is cut off again.
    support = value.support.get(axis)
    if (
        support is not None
        and not drop
        and bool((torch.bincount(index, minlength=value.shape[axis])[slice(*support)] == 1).all())
    ):
        sums = {**sums, axis: value.sums[axis]}
    pairs = zip(out.data_shifts, value.data_shifts, strict=True)
    return replace(out, sums=sums, data_shifts=tuple(_picked(new, old, axis, index, drop) for new, old in pairs))


def _picked(new: DataShift, old: DataShift, axis: int, index: torch.Tensor, drop: bool = False) -> DataShift:
    """A data-dependent shift of selected entries: of the source the same entries, and the same shift if all are equal."""
    if axis not in old.axes:
        return new
    source = selected(new.source, old.axes[axis], index)
    return replace(new, source=source, origin=old.origin if old.is_constant(axis) and not drop else ())


def unread_rows_move_with_read_ones(call: OpCall, shift: Shift, axis: int, read: torch.Tensor) -> Shift:
    """Demand that table rows which inputs of this length do not read shift like a row that is read, because longer
    inputs read them."""
    unread = torch.ones(shift.shape[axis], dtype=torch.bool)
    unread[read] = False
    rows = torch.nonzero(unread).flatten()
    if shift and len(rows) and len(read):
        call.demand_constant(selected(shift, axis, torch.cat([read[:1], rows])), [axis])
    return call.current(shift)


@rule("slice", "narrow", masks=True)
def slice_(call: OpCall, value: NodeValue, dim: int = 0, *args: object, **kwargs: object) -> Output:
    """A range of entries of one axis."""
    entries = torch.arange(value.shape[dim])
    taken = call.target(entries, 0, *args, **kwargs)
    axis = dim % len(value.shape)
    # A slice of a weight along its rows is a position table cut to the length of the input. Along the last axis it is a
    # part of a fused bias, whose other parts are read elsewhere.
    if value.known is not None and value.shift and axis < len(value.shape) - 1:
        shift = unread_rows_move_with_read_ones(call, value.shift, axis, taken)
        value = replace(value, shift=shift)
    return _pick(call, value, dim, taken)


@rule("select", masks=True)
def select(call: OpCall, value: NodeValue, dim: int, index: int) -> Output:
    """One entry of one axis, which is removed."""
    return _pick(call, value, dim, torch.tensor([index % value.shape[dim]]), drop=True)


@rule(
    *("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes"),
    masks=True,
)
def split(call: OpCall, value: NodeValue, sizes: object, dim: int = 0) -> list[Output]:
    """Several ranges of entries of one axis."""
    parts = call.target(torch.arange(value.shape[dim]), sizes, 0)
    return [_pick(call, value, dim, part, at) for at, part in enumerate(parts)]


@rule("unbind", masks=True)
def unbind(call: OpCall, value: NodeValue, dim: int = 0) -> list[Output]:
    """Each entry of one axis as an output of its own."""
    return [_pick(call, value, dim, torch.tensor([at]), at, drop=True) for at in range(value.shape[dim])]


@rule("index_select", axial=True, masks=True)
def index_select(call: OpCall, value: NodeValue, dim: int, index: NodeValue) -> Output:
    """Known entries of one axis; if the index is data, the shift must be the same for all entries."""
    if index.known is not None:
        return _pick(call, value, dim, index.known)
    value = call.demand_constant_value(value, [dim])
    one = selected(value.shift, dim % len(value.shape), torch.tensor([0]))
    return rearranged(call, value, lambda _: broadcast(one, call.shape), _same(len(value.shape)))


@rule("flip", "roll", axial=True)
def reorder(call: OpCall, value: NodeValue, *args: object) -> Output:
    """A permutation of entries applies to the map as it does to the value."""
    return mapped_by_target(call, value, args)


def mapped_by_target(
    call: OpCall,
    value: NodeValue,
    args: tuple[object, ...],
    kwargs: Mapping[str, object] | None = None,
    gain: float = 1.0,
) -> Output:
    """Apply a linear operation to the map itself; data-dependent shifts must vanish."""
    value = call.without_data_shifts(value)
    if value.masked:
        call.demand_unchanged(value)
        return call.unmoved()
    return Output(mapped(value.shift, lambda each: call.target(each, *args, **(kwargs or {})), call.shape, gain))


@rule("cat", "stack", masks=True)
def cat(call: OpCall, values: Sequence[NodeValue], dim: int = 0) -> Output:
    """Each part keeps its own shift; along the concatenated axis the shift is constant only if all parts have the same."""
    dims = len(call.shape)
    dim %= dims
    parts = [value for value in values if value.shape != (0,)]
    if call.op == "stack":
        unit = tuple(size if at != dim else 1 for at, size in enumerate(call.shape))
        shifts = [reshaped(value.shift, unit) for value in parts]
        axes = {axis: axis + (axis >= dim) for axis in range(dims - 1)}
    else:
        shifts = [value.shift for value in parts]
        axes = {axis: axis for axis in range(dims) if axis != dim}
    placed, before = list[DataShift](), 0
    for value in parts:
        size = 1 if call.op == "stack" else value.shape[dim]
        for each in value.data_shifts:
            placed.append(each.placed(axes, dim, JoinedPart(before, size, call.shape[dim]), is_axis=call.op != "stack"))
        before += size
    data_shifts, known = merged(tuple(placed), call.shape)
    masks = [value.masked for value in parts if value.masked is not None]
    sums = {}
    if call.op != "stack":
        for axis in axes:
            if all(axis in value.sums for value in parts):
                sums[axis] = torch.cat([value.sums[axis].expand(_unit(value.shape, axis)) for value in parts], dim=dim)
    shift = plus(concatenated(shifts, dim), known, call.shape)
    return Output(shift, data_shifts, sums, merged_masks(masks) if masks else None)


@rule("slice_scatter", "select_scatter")
def slice_scatter(
    call: OpCall, value: NodeValue, source: NodeValue, dim: int = 0, *args: object, **kwargs: object
) -> Output:
    """A range of one axis, or one entry of it, is replaced: the result is the part before it, the source and the part after
    it, concatenated."""
    dims, axis = len(value.shape), dim % len(value.shape)
    one = len(source.shape) < dims
    size = 1 if one else source.shape[axis]
    taken = call.target(torch.zeros(value.shape[axis]), torch.ones(() if one else (size,)), 0, *args, **kwargs)
    indices = torch.nonzero(taken).flatten()
    first, last = (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)
    if last - first != size:
        call.demand_unchanged(value, source)
        return call.unmoved()
    placed = reshaped(source.shift, (*value.shape[:axis], size, *value.shape[axis + 1 :]))
    parts = [selected(value.shift, axis, torch.arange(first)), placed]
    parts.append(selected(value.shift, axis, torch.arange(last, value.shape[axis])))
    data_shifts = (
        *(each.rearranged({at: at for at in range(dims) if at != axis}) for each in value.data_shifts),
        *(
            each.rearranged({at - (one and at > axis): at for at in range(dims) if at != axis})
            for each in source.data_shifts
        ),
    )
    return Output(concatenated([part for part in parts if part.shape[axis]], axis), data_shifts)


@rule("repeat", "repeat_interleave", "tile", masks=True)
def repeat(call: OpCall, value: NodeValue, *args: object, **kwargs: object) -> Output:
    """Copies: the origin of each output entry is determined by repeating the indices of the entries."""
    if len(value.shape) == 0 or any(isinstance(each, NodeValue) for each in values_in(args)):
        call.demand_unchanged(value)
        return call.unmoved()
    dims = len(call.shape)
    if call.op == "repeat_interleave" and (len(args) < 2 and "dim" not in kwargs):
        return mapped_by_target(call, value, args, kwargs)
    more = dims - len(value.shape)
    shift, lifted = broadcast(value.shift, (1,) * more + value.shape), (1,) * more + value.shape
    for axis in range(dims):
        if lifted[axis] != call.shape[axis]:
            reach = torch.arange(lifted[axis]).reshape(tuple(lifted[axis] if at == axis else 1 for at in range(dims)))
            if call.op == "repeat_interleave":
                index = reach.flatten().repeat_interleave(call.shape[axis] // lifted[axis])
            else:
                index = reach.flatten().repeat(call.shape[axis] // lifted[axis])
            shift = selected(shift, axis, index)
    axes = {axis: axis + more for axis in range(len(value.shape))}
    value = replace(value, data_shifts=tuple(_repeated(each, lifted, call.shape, more) for each in value.data_shifts))
    return rearranged(call, value, lambda _: Shift(call.shape, shift.terms), axes, sums=None)


def _repeated(given: DataShift, lifted: tuple[int, ...], shape: tuple[int, ...], more: int) -> DataShift:
    """A data-dependent shift before it is repeated, without the axes whose entries no longer are those of its source."""
    kept = {
        axis: own
        for axis, own in given.axes.items()
        if lifted[axis + more] == shape[axis + more] or given.is_constant(axis)
    }
    return replace(given, axes=kept)


@rule("constant_pad_nd", "pad", always=True, masks=True)
def pad(call: OpCall, value: NodeValue, padding: Sequence[int], *args: object, **_: object) -> Output:
    """New entries do not shift, the others keep their shift. Entries of at most -1e4 have no weight in a softmax."""
    if call.op == "pad" and args and args[0] not in ("constant", None):
        return mapped_by_target(call, value, (padding, *args))
    fill = args[0] if call.op == "constant_pad_nd" and args else args[1] if len(args) > 1 else 0.0
    if isinstance(fill, int | float) and fill <= MASKED and min(padding) >= 0 and not value.seen_by_softmax:
        return _padded_by_hidden(call, value, padding, float(fill))
    value = call.without_data_shifts(value)
    shift, dims = value.shift, len(value.shape)
    for at in range(len(padding) // 2):
        axis, before, after = dims - 1 - at, padding[2 * at], padding[2 * at + 1]
        if before < 0 or after < 0:
            call.demand_unchanged(value)
            return call.unmoved()
        pieces = [shift]
        for size, first in ((before, True), (after, False)):
            if size:
                empty = zero_shift(tuple(size if d == axis else s for d, s in enumerate(shift.shape)))
                pieces = [empty, *pieces] if first else [*pieces, empty]
        shift = concatenated(pieces, axis) if len(pieces) > 1 else shift
    return Output(Shift(call.shape, shift.terms), masked=value.masked)


def _padded_by_hidden(call: OpCall, value: NodeValue, padding: Sequence[int], fill: float) -> Output:
    """As if the entries at the edge were repeated and then masked."""
    shift, dims, reach = value.shift, len(value.shape), dict[int, tuple[int, int]]()
    data_shifts = tuple(each.rearranged({axis: axis for axis in range(dims)}) for each in value.data_shifts)
    for at in range(len(padding) // 2):
        axis, before, after = dims - 1 - at, padding[2 * at], padding[2 * at + 1]
        if before or after:
            size = value.shape[axis]
            entries = (torch.arange(before + size + after) - before).clamp(0, size - 1)
            shift = selected(shift, axis, entries)
            data_shifts = tuple(_picked(each, each, axis, entries, drop=True) for each in data_shifts)
            reach[axis] = (before, before + size)
    if value.moves:
        call.assume(HIDDEN)
    mask = Mask(hides=True, infinite=fill == -inf, reach=reach)
    if value.masked is not None:
        mask = merged_masks([value.masked, mask])
    return Output(Shift(call.shape, shift.terms), data_shifts, masked=mask)
