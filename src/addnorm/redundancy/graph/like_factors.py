"""Data-dependent shifts with the same factor: a f + b f = (a + b) f, so that only the sum of their sources counts.

A shift a of one operand and the numbers f of the other make the data-dependent shift a f. Where two such shifts with the
same f meet in a sum, moves of the parameters may cancel between them although neither cancels alone: a gate z h + (1 - z) h,
or scores q k + r k in which queries and positions meet the same keys. Whether two factors are the same is decided by the
node that holds the numbers, followed through permutations, and multiples and sums with known numbers (`Multiple`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import COPIES, PERMUTING
from addnorm.redundancy.graph.linear_images import Image
from addnorm.redundancy.graph.reshaping import axes_after, permuted, reshaped, selected
from addnorm.redundancy.graph.shift import Shift, add, broadcast, scaled

_SCALING = frozenset({"add", "sub", "rsub", "mul", "div", "neg"})


@dataclass(frozen=True)
class Multiple:
    """A value as offset + scale * another one with permuted axes."""

    name: str
    """Node of the other value."""
    order: tuple[int, ...]
    """Axis of the other value, per axis of this one."""
    scale: float = 1.0
    offset: float = 0.0
    image: Image | None = None
    """The other value as a linear map of an earlier one, if it is."""


@dataclass(frozen=True)
class Product:
    """Relation of a data-dependent shift to its source: the sum over common labels of source * factor.

    A label from 0 is an axis of the value; a negative one, -1 - k, is the factor's axis k, which is summed.
    """

    factor: str
    """Node that holds the factor's numbers."""
    factor_axes: tuple[int, ...]
    """A label per axis of the factor."""
    source_axes: tuple[int | None, ...]
    """A label per axis of the source; None for an axis along which it is constant and which the value no longer has."""
    moved: tuple[Shift, ...] = ()
    """The factor's own shifts, if its numbers after the move of the parameters count; empty if those before it do."""
    image: Image | None = None
    """The factor as a linear map of an earlier value, if it is."""

    def updated(self, current: Callable[[Shift], Shift]) -> "Product":
        """The same product with the factor's shifts in the coordinates that are still free."""
        return replace(self, moved=tuple(each for shift in self.moved if (each := current(shift))))

    def rearranged(self, axes: Mapping[int, int], source: Shift) -> "Product | None":
        """The product of a value whose axes were rearranged, old -> new; None if an axis that varies is lost."""
        # Without the axis that tells which entry of the factor is meant, the product would name another number.
        if any(label >= 0 and label not in axes for label in self.factor_axes):
            return None
        reduced, labels = source.reduced(), list[int | None]()
        for at, label in enumerate(self.source_axes):
            if label is None or label < 0:
                labels.append(label)
            elif label in axes:
                labels.append(axes[label])
            elif not reduced or reduced[at] == 1:
                labels.append(None)
            else:
                return None
        factor_axes = tuple(axes[label] if label >= 0 else label for label in self.factor_axes)
        return replace(self, factor_axes=factor_axes, source_axes=tuple(labels))


def multiple(op: str, target: Any, args: Any, shape: tuple[int, ...]) -> Multiple | None:
    """Return the first argument's `Multiple` after an operation; None if the operation does anything else to the numbers.

    Args:
        op: name of the operation.
        target: the operation, which can be called on tensors without numbers.
        args: its positional arguments, with tensors as `NodeValue`.
        shape: shape of the output.
    """
    tensors = [each for each in args if hasattr(each, "shift")]
    if op in PERMUTING and len(tensors) == 1:
        given = of(tensors[0])
        return replace(given, order=tuple(given.order[at] for at in axes_after(target, len(given.order), *args[1:])))
    if op in COPIES and tensors:
        return of(tensors[0])
    if op not in _SCALING or not tensors or len(args) > 2:
        return None
    data = [each for each in tensors if number_of(each) is None]
    # Of x + x both operands are data. A broadcast result has entries that the value does not have in this order.
    if len(data) != 1 or data[0].shape != shape:
        return None
    given, first = of(data[0]), args[0] is data[0]
    if op == "neg":
        return replace(given, scale=-given.scale, offset=-given.offset)
    number = number_of(args[1] if first else args[0]) if len(args) == 2 else None
    if number is None or not isfinite(number):
        return None
    if op in ("mul", "div"):
        if op == "div" and (not first or number == 0.0):
            return None
        number = number if op == "mul" else 1.0 / number
        return replace(given, scale=given.scale * number, offset=given.offset * number)
    # x + c, c + x, x - c, c - x, and rsub, which is c - x written as rsub(x, c).
    minus = -1.0 if (op == "sub" and not first) or (op == "rsub" and first) else 1.0
    number = -number if (op == "sub" and first) or (op == "rsub" and not first) else number
    return replace(given, scale=minus * given.scale, offset=minus * given.offset + number)


def of(value: Any) -> Multiple:
    """Return a value's `Multiple`; if it has none, the value is its own."""
    return value.multiple or Multiple(value.name, tuple(range(len(value.shape))), image=value.image)


def moves_last(first: Any, second: Any) -> bool:
    """Return True if the second of two factors counts after its move in (x + s)(y + t) - x y = s (y + t) + x t, otherwise the
    first. The order of nodes decides, so that a factor of several products counts alike in most of them."""
    one, other = of(first).name, of(second).name
    # Names of nodes end in a running number: mul_9 comes before mul_10.
    return (len(one), one) <= (len(other), other)


def shifts_of(value: Any) -> tuple[Shift, ...]:
    """Return all shifts of a value and the sources of its data-dependent ones."""
    return tuple(each for each in (value.shift, *(each.source for each in value.data_shifts)) if each)


@dataclass(frozen=True)
class NodeNames:
    """One name for all nodes that hold the same numbers because they do the same to the same."""

    of: Mapping[fx.Node, str]
    shared: frozenset[str]
    """Names of numbers that several operations read."""


def node_names(nodes: Iterable[fx.Node]) -> NodeNames:
    """Name the nodes of a graph. Random operations, and those that take functions, are like no other."""
    names: dict[fx.Node, str] = {}
    first: dict[Any, str] = {}
    readers: Counter[str] = Counter()
    for node in nodes:
        names[node] = node.name
        # Exported models compute the same thing twice (the mask of every layer, the transposed key of a shared projection),
        # and only equal names let shifts cancel. Two dropouts look alike too, and draw different numbers: merging them would
        # be a false proof. Operations that take functions have them as arguments, whose text is no identity.
        if isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded not in node.target.tags:
            called: Any = fx.map_arg((node.args, node.kwargs), lambda each: f"%{names.get(each, each.name)}")
            names[node] = first.setdefault((node.target, repr(called)), node.name)
        readers.update(names.get(each, each.name) for each in node.all_input_nodes)
    return NodeNames(names, frozenset(name for name, count in readers.items() if count > 1))


def number_of(value: Any) -> float | None:
    """The number, if it is a single known one that does not shift."""
    if isinstance(value, int | float):
        return float(value)
    known = getattr(value, "known", None)
    if known is None or value.moves or known.numel() != 1 or known.is_complex():
        return None
    return float(known.to(torch.float64))


def merged_source(
    products: tuple[Product, Product],
    sources: tuple[Shift, Shift],
    factors: tuple[float, float],
    shape: tuple[int, ...],
) -> tuple[Shift, Product] | None:
    """Return the source of the sum of two shifts with the same factor, and its product; None if they have not the same.

    Args:
        products: of both.
        sources: of both.
        factors: numbers by which the shifts are multiplied.
        shape: of the value that shifts.
    """
    # a f + b f' with f' the factor after its own move is not (a + b) f: whether the moved numbers count is part of the
    # identity.
    one = products[0]
    ours, theirs = ((each.factor, bool(each.moved), each.factor_axes) for each in products)
    if ours != theirs:
        return None
    sizes = dict(enumerate(shape))
    for product, source in zip(products, sources, strict=True):
        sizes |= {
            label: source.shape[at] for at, label in enumerate(product.source_axes) if label is not None and label < 0
        }
    labels = sorted(sizes)
    laid = [_laid_out(product, source, labels, sizes) for product, source in zip(products, sources, strict=True)]
    if laid[0] is None or laid[1] is None:
        return None
    wide = tuple(sizes[label] for label in labels)
    source = add(scaled(laid[0], factors[0]), laid[1], wide, factors[1])
    return source, replace(one, source_axes=tuple(labels))


def _laid_out(product: Product, source: Shift, labels: list[int], sizes: Mapping[int, int]) -> Shift | None:
    """A source with one axis per label, in order; None if sizes differ where it varies."""
    reduced = source.reduced() or (1,) * len(source.shape)
    kept = []
    for at, label in enumerate(product.source_axes):
        if reduced[at] == 1:
            source = selected(source, at, torch.tensor([0]))
        # An axis along which a source is constant is dropped here and broadcast below: the two sources may be constant
        # along different ones. A summed axis stays, because its size is a factor of the sum.
        if label is not None and (label < 0 or reduced[at] > 1):
            kept.append((label, at))
        if label is not None and reduced[at] > 1 and source.shape[at] != sizes[label]:
            return None
    # Two axes of one source under one label are a diagonal, which no permutation lays out.
    if len({label for label, _ in kept}) < len(kept):
        return None
    order = [at for _, at in sorted(kept)]
    rest = [at for at in range(len(source.shape)) if at not in order]
    moved = permuted(source, [*rest, *order])
    place = dict(kept)
    unit = tuple(moved.shape[len(rest) + order.index(place[label])] if label in place else 1 for label in labels)
    flat = reshaped(moved, unit)
    return broadcast(flat, tuple(sizes[label] for label in labels))
