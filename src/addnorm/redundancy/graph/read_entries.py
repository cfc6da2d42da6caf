"""Entries of a value that nothing reads: of the tokens behind the last norm a classifier reads one.

An operation on rows (a norm, an activation, a sum) computes each row of its output from the same row of its inputs. If
nothing on the way to the observed output reads a row, the model computes the same where this row of the input is replaced
by another one, which is read. The replaced row shifts like that one, so that no demand is made for its own shift. Only rows
of data are replaced: rows of a parameter that short inputs do not read are read by longer ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import COPIES, LOG_SOFTMAXES, PERMUTING, SOFTMAXES, VIEWS, name_of
from addnorm.redundancy.graph.reshaping import axes_after, kept_axes, selected
from addnorm.redundancy.graph.shift import DenseTerm, Shift, reduce_equal
from addnorm.redundancy.graph.value import DataShift, NodeValue

Entries = Mapping[int, torch.Tensor]
"""Axis -> the entries of it that are read, boolean; all entries of the other axes are."""

_ENTRYWISE = frozenset(
    {
        "add", "sub", "rsub", "mul", "div", "neg", "gelu", "relu", "silu", "tanh", "sigmoid", "exp", "softplus", "elu", "mish",
        "leaky_relu", "hardswish", "relu6", "pow", "sqrt", "rsqrt", "abs", "clamp", "dropout", "where", "masked_fill", "sin",
        "cos", "erf", "log", "log_sigmoid", "hardtanh", "hardsigmoid",
    }
)  # fmt: skip
_REARRANGING = frozenset({"slice", "narrow", "select", "cat", "expand"}) | COPIES | VIEWS | PERMUTING


def read_entries(nodes: Sequence[fx.Node], observed: Iterable[fx.Node]) -> dict[fx.Node, Entries]:
    """Return the entries of each node that the observed nodes depend on, for nodes of which some are not read."""
    # Backward from the outputs, as in reverse differentiation: when a node is reached, all its readers have been. An axis
    # without a mask is read whole, so a node with an unknown operation, whose inputs get no mask, is on the safe side.
    read: dict[fx.Node, Entries] = {node: {} for node in observed}
    for node in reversed(nodes):
        if node not in read:
            continue
        for source, entries in _asked(node, read[node]):
            before = read.get(source)
            read[source] = entries if before is None else _either(before, entries)
    return {node: entries for node, entries in read.items() if entries}


def as_read(node: fx.Node, read: Mapping[fx.Node, Entries]) -> dict[fx.Node, Entries]:
    """Return the entries of each input that a node's own read entries are computed from, if these are not all."""
    if node not in read or name_of(node.target) in _REARRANGING:
        return {}
    wanted: dict[fx.Node, Entries] = {}
    for source, entries in _asked(node, read[node]):
        wanted[source] = _either(wanted[source], entries) if source in wanted else entries
    return {source: entries for source, entries in wanted.items() if entries}


def with_copies(value: NodeValue, entries: Entries) -> NodeValue:
    """Return a value whose unread entries are copies of a read one."""
    # A known value is a number that rules compare, and a masked one is minus infinity at known places: a copy of another row
    # would change what they say, although no output depends on it.
    if value.known is not None or value.masked is not None:
        return value
    for axis, mask in entries.items():
        if not bool(mask.any()) or not _varies(value, axis):
            continue
        index = torch.arange(len(mask))
        index[~mask] = int(mask.to(torch.int8).argmax())
        # A plane along this axis is a relation between entries, of which some are now copies. Sums, masks and names are
        # about the rows that were replaced, so they are not handed on.
        plane = value.plane if value.plane is None or value.plane.axis != axis else None
        shifts = tuple(_copied_data_shift(each, axis, index) for each in value.data_shifts)
        value = NodeValue(value.shape, _copied(value.shift, axis, index), data_shifts=shifts, plane=plane)
    return value


def _varies(value: NodeValue, axis: int) -> bool:
    reduced = value.shift.reduced()
    return bool(reduced and reduced[axis] > 1) or any(
        axis in each.axes and not each.is_constant(axis) for each in value.data_shifts
    )


def _copied(shift: Shift, axis: int, index: torch.Tensor) -> Shift:
    picked = selected(shift, axis, index)
    terms = {
        block: replace(term, numbers=reduce_equal(term.numbers)) if isinstance(term, DenseTerm) else term
        for block, term in picked.terms.items()
    }
    return Shift(picked.shape, terms)


def _copied_data_shift(given: DataShift, axis: int, index: torch.Tensor) -> DataShift:
    """The data-dependent shift after the copies: other than before, unless it is constant along the axis."""
    if given.is_constant(axis):
        return given
    # `origin` and `product` are dropped: after the copies it is another unknown shift, and two of equal origin would be
    # taken to cancel.
    axes, relaxation = given.axes, given.relaxation
    if axis in axes:
        return DataShift(_copied(given.source, axes[axis], index), axes, relaxation, factor=given.factor)
    return DataShift(given.source, axes, relaxation, factor=given.factor)


def _either(one: Entries, other: Entries) -> Entries:
    # The entries that at least one of two readers reads: masks are joined where both have one, and an axis that either
    # reads whole is read whole.
    return {
        axis: one[axis] | other[axis] for axis in one.keys() & other.keys() if not bool((one[axis] | other[axis]).all())
    }


def _asked(node: fx.Node, read: Entries) -> Iterator[tuple[fx.Node, Entries]]:
    """The entries of each input that some entries of a node are computed from."""
    placed = _placed(node, read) if node.op == "call_function" and _shape(node) is not None else {}
    for source in node.all_input_nodes:
        yield source, placed.get(source, {})


def _placed(node: fx.Node, read: Entries) -> dict[fx.Node, Entries]:
    op, shape = name_of(node.target), _shape(node) or ()
    args: tuple[Any, ...] = node.args
    first = args[0] if args and isinstance(args[0], fx.Node) else None
    own = _shape(first) if first is not None else None
    if op in _ENTRYWISE or op == "expand":
        operands: dict[fx.Node, Entries] = {}
        for source in node.all_input_nodes if op != "expand" else [first] if first is not None else []:
            given = _shape(source)
            if given is None:
                continue
            # An operand with one entry along an axis (a bias, a mean) is read whole whatever rows are read: only axes
            # of equal size carry a mask back.
            more = len(shape) - len(given)
            operands[source] = {
                axis - more: mask for axis, mask in read.items() if axis >= more and given[axis - more] == shape[axis]
            }
        return operands
    if op == "cat":
        return _parts(node, read)
    # From here on, a rule speaks of the first input alone. If that tensor is another argument as well (a value times its own
    # transpose), the other reading has rows of its own, and nothing is left out.
    if first is None or own is None or first in args[1:]:
        return {}
    dims = len(own)
    if op in COPIES:
        return {first: read}
    if op in VIEWS:
        kept = {new: old for old, new in kept_axes(own, shape).items()}
        return {first: {kept[axis]: mask for axis, mask in read.items() if axis in kept}}
    if op in PERMUTING:
        order = axes_after(node.target, dims, *args[1:], **node.kwargs)
        return {first: {order[axis]: mask for axis, mask in read.items()}}
    if op in ("slice", "narrow", "select"):
        return {first: _sliced(node, own, read)}
    # A norm mixes the axes that it normalises, a linear map the last one, a softmax its own. Attention's output row needs its
    # own query row, and all keys and values, which are other arguments and stay read.
    if op in ("layer_norm", "rms_norm"):
        return {first: {axis: mask for axis, mask in read.items() if axis < dims - len(args[1])}}
    if op == "linear":
        return {first: {axis: mask for axis, mask in read.items() if axis < dims - 1}}
    if op in SOFTMAXES | LOG_SOFTMAXES and isinstance(args[1], int):
        return {first: {axis: mask for axis, mask in read.items() if axis != args[1] % dims}}
    if op == "scaled_dot_product_attention" and len(shape) == dims:
        return {first: {axis: mask for axis, mask in read.items() if axis == dims - 2}}
    return {}


def _sliced(node: fx.Node, own: tuple[int, ...], read: Entries) -> Entries:
    axis = node.args[1] if len(node.args) > 1 else 0
    if not isinstance(axis, int) or node.kwargs:
        return {}
    axis %= len(own)
    dropped = name_of(node.target) == "select"
    places = {old: old - (dropped and old > axis) for old in range(len(own)) if not (dropped and old == axis)}
    others = {old: read[new] for old, new in places.items() if new in read and old != axis}
    # The slice is taken of the numbers 0, 1, 2, …: what comes out are the places that it reads, for every form of its bounds.
    reach = torch.arange(own[axis])
    taken = node.target(reach, 0, *node.args[2:])  # type: ignore[operator]
    taken = taken.reshape(-1)
    seen = read[places[axis]] if not dropped and places[axis] in read else torch.ones(len(taken), dtype=torch.bool)
    mask = torch.zeros(own[axis], dtype=torch.bool)
    mask[taken[seen]] = True
    return others if bool(mask.all()) else {**others, axis: mask}


def _parts(node: fx.Node, read: Entries) -> dict[fx.Node, Entries]:
    parts, shape = node.args[0], _shape(node) or ()
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    if not isinstance(parts, list | tuple) or not isinstance(dim, int) or len(set(parts)) < len(parts):
        return {}
    dim %= len(shape)
    placed: dict[fx.Node, Entries] = {}
    at = 0
    for part in parts:
        given = _shape(part) if isinstance(part, fx.Node) else None
        if not isinstance(part, fx.Node) or given is None or len(given) != len(shape):
            return {}
        own = {axis: mask for axis, mask in read.items() if axis != dim}
        if dim in read and not bool(read[dim][at : at + given[dim]].all()):
            own[dim] = read[dim][at : at + given[dim]]
        at += given[dim]
        placed[part] = own
    return placed


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None
