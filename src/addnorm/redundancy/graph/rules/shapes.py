"""Operations that only move numbers about: the shift moves with them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import joined, kept_axes, permuted, picked, reshaped
from addnorm.redundancy.graph.rule import Site, rule, tensors
from addnorm.redundancy.graph.shift import Shift, moved, spread, still
from addnorm.redundancy.graph.value import Out, Plane, Value, together

Move = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]
"""Takes known numbers (spelt out but for one axis, of size 1) and their new shape (same axis of size 1) through a
movement.
"""


def carried(
    site: Site,
    value: Value,
    op: Callable[[Shift], Shift],
    axes: Mapping[int, int],
    at: int = 0,
    sums: Move | None = None,
    step: Hashable = None,
) -> Out:
    """Apply a movement; loose moves, sums and planes stay known along the axes that survive (old -> new).

    `step` names a movement that depends on nothing else."""
    shift = op(value.shift) if value.shift else still(site.shapes[at])
    loose = tuple(each.turned(axes, step) for each in value.loose)
    kept = {}
    for axis, known in value.sums.items():
        if axis in axes and sums is not None:
            wide = known.expand(_unit(value.shape, axis))
            kept[axes[axis]] = sums(wide, _unit(site.shapes[at], axes[axis]))
    masked = value.masked.elsewhere() if value.masked is not None else None
    plane = value.plane
    whole = plane is not None and plane.axis in axes and site.shapes[at][axes[plane.axis]] == value.shape[plane.axis]
    return Out(shift, loose, kept, masked, Plane(axes[plane.axis], plane.normals) if plane and whole else None)


def _unit(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if at == axis else size for at, size in enumerate(shape))


def _same(dims: int) -> dict[int, int]:
    return {axis: axis for axis in range(dims)}


@rule("view", "view_as", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze")
def view(site: Site, value: Value, *args: object, **__: object) -> Out:
    """The same numbers in the same order, so the same shifts in the same order.

    An axis that stays an axis keeps what is known along it. The same bits read as another type are other numbers."""
    if args and isinstance(args[0], torch.dtype):
        site.unchanged(value)
        return site.still()
    axes = kept_axes(value.shape, site.shape)
    step = ("view", site.shape)
    return carried(site, value, lambda shift: reshaped(shift, site.shape), axes, sums=torch.Tensor.reshape, step=step)


@rule("permute", "transpose", "t", "movedim", "swapaxes", "numpy_T", "adjoint", "mT")
def permute(site: Site, value: Value, *args: object, **kwargs: object) -> Out:
    """The same numbers under other axes; which axis goes where is seen on a tensor of the same shape."""
    probe = torch.empty(tuple(range(2, 2 + len(value.shape))), device="meta")
    order = [size - 2 for size in site.target(probe, *args, **kwargs).shape]
    axes = {old: new for new, old in enumerate(order)}
    step = ("permute", *order)
    return carried(
        site, value, lambda shift: permuted(shift, order), axes, sums=lambda known, _: known.permute(order), step=step
    )


@rule("clone", "contiguous", "alias", "detach", "_to_copy", "to", "lift_fresh", "lift_fresh_copy", "type_as")
def copy(site: Site, value: Value, *args: object, **__: object) -> Out:
    """The same numbers (a cast to another floating type is taken as exact; to an integer it must not move)."""
    if not site.floating:
        site.unchanged(value)
        return site.still()
    return Out(value.shift, value.loose, value.sums, value.masked, value.plane)


@rule("expand", "expand_as", "broadcast_to")
def expand(site: Site, value: Value, *_: object, **__: object) -> Out:
    """Copies along new or unit axes, so the shift is constant along these."""
    more = len(site.shape) - len(value.shape)
    axes = {axis: axis + more for axis in range(len(value.shape)) if value.shape[axis] == site.shape[axis + more]}
    step = ("expand", site.shape)
    return carried(site, value, lambda shift: spread(shift, site.shape), axes, sums=torch.Tensor.expand, step=step)


@rule("copy")
def overwrite(site: Site, value: Value, source: Value, *_: object, **__: object) -> Out | list[Out]:
    """What stood there before is gone: the numbers, and so the shift, are the source's, copied along axes that it lacks."""
    if not site.floating:
        site.unchanged(source)
        return site.still()
    return expand(site, source)


def _pick(site: Site, value: Value, axis: int, index: torch.Tensor, at: int = 0, drop: bool = False) -> Out:
    """Entries of one axis; sums along that axis are lost, all else stays."""
    dims = len(value.shape)
    axis %= dims
    axes = {old: old - (drop and old > axis) for old in range(dims) if not (drop and old == axis)}

    def op(shift: Shift) -> Shift:
        part = picked(shift, axis, index)
        return reshaped(part, site.shapes[at]) if drop else part

    def narrowed(known: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return known.index_select(axis, index).reshape(shape)

    axes_kept = {old: new for old, new in axes.items() if old != axis}
    plane = value.plane if value.plane is not None and value.plane.axis != axis else None
    out = carried(site, replace(value, sums={}, plane=plane), op, axes, at)
    sums = carried(site, Value(value.shape, still(value.shape), sums=value.sums), op, axes_kept, at, narrowed).sums
    return replace(out, sums=sums)


def unread_follow(site: Site, shift: Shift, axis: int, read: torch.Tensor) -> Shift:
    """Rows of a table that inputs of this length do not read: longer ones would, so that they may only move with a
    row that is read.
    """
    unread = torch.ones(shift.shape[axis], dtype=torch.bool)
    unread[read] = False
    rows = torch.nonzero(unread).flatten()
    if shift and len(rows) and len(read):
        site.constant(picked(shift, axis, torch.cat([read[:1], rows])), [axis])
    return site.now(shift)


@rule("slice", "narrow")
def slice_(site: Site, value: Value, dim: int = 0, *args: object, **kwargs: object) -> Out:
    """A run of entries of one axis."""
    entries = torch.arange(value.shape[dim])
    taken = site.target(entries, 0, *args, **kwargs)
    axis = dim % len(value.shape)
    if value.known is not None and value.shift and axis < len(value.shape) - 1:
        shift = unread_follow(site, value.shift, axis, taken)
        value = replace(value, shift=shift)
    return _pick(site, value, dim, taken)


@rule("select")
def select(site: Site, value: Value, dim: int, index: int) -> Out:
    """One entry of one axis, which disappears."""
    return _pick(site, value, dim, torch.tensor([index % value.shape[dim]]), drop=True)


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes")
def split(site: Site, value: Value, sizes: object, dim: int = 0) -> list[Out]:
    """Several runs of entries of one axis."""
    parts = site.target(torch.arange(value.shape[dim]), sizes, 0)
    return [_pick(site, value, dim, part, at) for at, part in enumerate(parts)]


@rule("unbind")
def unbind(site: Site, value: Value, dim: int = 0) -> list[Out]:
    """Every entry of one axis by itself."""
    return [_pick(site, value, dim, torch.tensor([at]), at, drop=True) for at in range(value.shape[dim])]


@rule("index_select", axial=True)
def index_select(site: Site, value: Value, dim: int, index: Value) -> Out:
    """Known entries of one axis; if the index is data, the shift must not depend on which entry is taken."""
    if index.known is not None:
        return _pick(site, value, dim, index.known)
    value = site.level(value, [dim])
    one = picked(value.shift, dim % len(value.shape), torch.tensor([0]))
    return carried(site, value, lambda _: spread(one, site.shape), _same(len(value.shape)))


@rule("flip", "roll", axial=True)
def reorder(site: Site, value: Value, *args: object) -> Out:
    """A permutation of entries, applied to the map as it is to the value."""
    return moved_by_target(site, value, args)


def moved_by_target(
    site: Site, value: Value, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None, gain: float = 1.0
) -> Out:
    """Apply a linear operation to the map itself; loose moves must vanish."""
    value = site.settled(value)
    if value.masked:
        site.unchanged(value)
        return site.still()
    return Out(moved(value.shift, lambda each: site.target(each, *args, **(kwargs or {})), site.shape, gain))


@rule("cat", "stack", "concat", "concatenate")
def cat(site: Site, values: Sequence[Value], dim: int = 0) -> Out:
    """Side by side: each part keeps its own shift, so along the joined axis the shift is constant only if all parts
    agree.
    """
    dims = len(site.shape)
    dim %= dims
    parts = [value for value in values if value.shape != (0,)]
    if site.op == "stack":
        unit = tuple(size if at != dim else 1 for at, size in enumerate(site.shape))
        shifts = [reshaped(value.shift, unit) for value in parts]
        axes = {axis: axis + (axis >= dim) for axis in range(dims - 1)}
    else:
        shifts = [value.shift for value in parts]
        axes = {axis: axis for axis in range(dims) if axis != dim}
    loose = tuple(each.turned(axes) for value in parts for each in value.loose)
    masks = [value.masked for value in parts if value.masked is not None]
    sums = {}
    if site.op != "stack":
        for axis in axes:
            if all(axis in value.sums for value in parts):
                sums[axis] = torch.cat([value.sums[axis].expand(_unit(value.shape, axis)) for value in parts], dim=dim)
    return Out(joined(shifts, dim), loose, sums, together(masks) if masks else None)


@rule("slice_scatter")
def slice_scatter(site: Site, value: Value, source: Value, dim: int = 0, *args: object, **kwargs: object) -> Out:
    """A run of entries of one axis is replaced: what was before it, the source, and what was behind, side by side."""
    dims, axis = len(value.shape), dim % len(value.shape)
    taken = site.target(torch.zeros(value.shape[axis]), torch.ones(source.shape[axis]), 0, *args, **kwargs)
    places = torch.nonzero(taken).flatten()
    first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if last - first != source.shape[axis] or value.masked or source.masked:
        site.unchanged(value, source)
        return site.still()
    parts = [picked(value.shift, axis, torch.arange(first)), source.shift]
    parts.append(picked(value.shift, axis, torch.arange(last, value.shape[axis])))
    loose = tuple(each.turned({at: at for at in range(dims) if at != axis}) for each in (*value.loose, *source.loose))
    return Out(joined([part for part in parts if part.shape[axis]], axis), loose)


@rule("repeat", "repeat_interleave", "tile")
def repeat(site: Site, value: Value, *args: object, **kwargs: object) -> Out:
    """Copies: where each entry of the output comes from is seen by repeating the entries' numbers."""
    if len(value.shape) == 0 or any(isinstance(each, Value) for each in tensors(args)):
        site.unchanged(value)
        return site.still()
    dims = len(site.shape)
    if site.op == "repeat_interleave" and (len(args) < 2 and "dim" not in kwargs):
        return moved_by_target(site, value, args, kwargs)
    more = dims - len(value.shape)
    shift, lifted = spread(value.shift, (1,) * more + value.shape), (1,) * more + value.shape
    for axis in range(dims):
        if lifted[axis] != site.shape[axis]:
            reach = torch.arange(lifted[axis]).reshape(tuple(lifted[axis] if at == axis else 1 for at in range(dims)))
            if site.op == "repeat_interleave":
                index = reach.flatten().repeat_interleave(site.shape[axis] // lifted[axis])
            else:
                index = reach.flatten().repeat(site.shape[axis] // lifted[axis])
            shift = picked(shift, axis, index)
    axes = {axis: axis + more for axis in range(len(value.shape))}
    return carried(site, value, lambda _: Shift(site.shape, shift.terms), axes, sums=None)


@rule("constant_pad_nd", "pad")
def pad(site: Site, value: Value, padding: Sequence[int], *args: object, **_: object) -> Out:
    """New entries do not move, the others keep their shift."""
    if site.op == "pad" and args and args[0] not in ("constant", None):
        return moved_by_target(site, value, (padding, *args))
    value = site.settled(value)
    shift, dims = value.shift, len(value.shape)
    for at in range(len(padding) // 2):
        axis, before, after = dims - 1 - at, padding[2 * at], padding[2 * at + 1]
        if before < 0 or after < 0:
            site.unchanged(value)
            return site.still()
        pieces = [shift]
        for size, first in ((before, True), (after, False)):
            if size:
                empty = still(tuple(size if d == axis else s for d, s in enumerate(shift.shape)))
                pieces = [empty, *pieces] if first else [*pieces, empty]
        shift = joined(pieces, axis) if len(pieces) > 1 else shift
    return Out(Shift(site.shape, shift.terms), masked=value.masked)
