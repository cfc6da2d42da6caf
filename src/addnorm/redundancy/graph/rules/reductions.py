"""Sums and means."""

from collections.abc import Sequence
from math import prod

from addnorm.redundancy.graph.reshaping import reshaped, summed
from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.shift import scaled
from addnorm.redundancy.graph.value import Out, Value


@rule("sum", "mean", axial=True)
def total(site: Site, value: Value, dim: int | Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Out:
    """sum(x + s) = sum(x) + sum(s)."""
    if value.masked and value.moves:
        site.unchanged(value)
        return site.still()
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
    loose = tuple(each.turned(after) for each in value.loose)
    if not axes:
        return Out(value.shift, loose)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    shift = reshaped(summed(value.shift, axes, shape), site.shape)
    return Out(scaled(shift, 1.0 / prod(value.shape[axis] for axis in axes)) if site.op == "mean" else shift, loose)
