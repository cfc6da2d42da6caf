"""Looking entries up: by known places the map is looked up too, by data the shift must be the same everywhere."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import picked, reshaped
from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.rules.shapes import moved_by_target, unread_follow
from addnorm.redundancy.graph.shift import add, cleaned, spread, still
from addnorm.redundancy.graph.value import Loose, Out, Value


@rule("embedding")
def embedding(site: Site, weight: Value, index: Value, *_: object, **__: object) -> Out:
    """Row i of W + S is W_i + S_i. The padding row is read like any other; only its gradient is zero.

    Which rows data choose is unknown: what moves is the first row's shift, which is known, and the difference of the row that
    is taken from the first, which is not, but constant along the columns if all these differences are."""
    weight = site.settled(weight)
    if index.known is not None:
        read = index.known.reshape(-1).to(torch.int64)
        shift = unread_follow(site, weight.shift, 0, read)
        return Out(reshaped(picked(shift, 0, read), site.shape))
    if not weight.shift:
        return site.still()
    row = reshaped(picked(weight.shift, 0, torch.tensor([0])), weight.shape[1:])
    apart = site.now(cleaned(add(weight.shift, row, weight.shape, -1.0)))
    loose = (Loose(apart, {len(site.shape) - 1: 1}),) if apart else ()
    return Out(spread(row, site.shape), loose)


@rule("index")
def index(site: Site, value: Value, places: Sequence[Value | None]) -> Out:
    """Entries at known places; at places that are data, the shift must be constant along the axes looked up."""
    axes = [axis for axis, place in enumerate(places) if place is not None]
    known = [place.known if place is not None else None for place in places]
    if all(known[axis] is not None for axis in axes):
        only = known[axes[0]]
        if len(axes) == 1 and only is not None and only.dtype != torch.bool and not value.loose and not value.masked:
            read = only.reshape(-1) % value.shape[axes[0]]
            shift = value.shift
            if value.known is not None:
                shift = unread_follow(site, shift, axes[0], read)
            return Out(reshaped(picked(shift, axes[0], read), site.shape))
        return moved_by_target(site, value, (known,))
    value = site.settled(value)
    if value.masked or axes != list(range(len(axes))):
        site.unchanged(value)
        return site.still()
    row = site.constant(value.shift, axes)
    for axis in axes:
        row = picked(row, axis, torch.tensor([0]))
    row = reshaped(row, value.shape[len(axes) :])
    return Out(spread(row, site.shape))


@rule("take_along_dim", axial=True)
def take_along_dim(site: Site, value: Value, index: Value, dim: int | None = None) -> Out | list[Out]:
    """As `gather`, where both have the same sizes but along the axis; without an axis everything is one."""
    axis = None if dim is None else dim % len(value.shape)
    same = len(index.shape) == len(value.shape) and all(
        at == axis or size == other for at, (size, other) in enumerate(zip(value.shape, index.shape, strict=True))
    )
    if axis is None or not same:
        site.unchanged(value)
        return site.still()
    return gather(replace(site, target=torch.ops.aten.gather.default), value, axis, index)


@rule("gather", axial=True)
def gather(site: Site, value: Value, dim: int, index: Value, *_: object, **__: object) -> Out:
    """Entries of one axis: what is constant along it is what it was, whichever entry is taken, and as constant elsewhere.

    At places that are data a shift has to be constant so; at known ones it is looked up. Loose moves have to be anyway.
    """
    axis = dim % len(value.shape)
    cut = [at for at in range(len(value.shape)) if at != axis and value.shape[at] != site.shape[at]]
    if value.masked or (cut and value.loose):
        site.unchanged(value)
        return site.still()
    loose = site.level(Value(value.shape, still(value.shape), loose=value.loose), [axis]).loose
    value = Value(value.shape, site.now(value.shift), value.known)
    if index.known is not None:
        return Out(moved_by_target(site, value, (dim, index.known)).shift, loose)
    one = site.constant(value.shift, [axis, *cut])
    for each in (axis, *cut):
        one = picked(one, each, torch.tensor([0]))
    return Out(spread(one, site.shape), loose)
