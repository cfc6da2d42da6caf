"""Nodes of a graph that hold the same numbers in the same order as an earlier one.

A kernel that works in a buffer becomes, made functional, a chain of writes into the flattened buffer and of reads back
from it. What a read finds is what the last write put there; and a view of a view is a view of the first. Seen so, an
axis that was folded away on the way into the buffer is an axis again behind it.
"""

import operator
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import fx

_VIEWS = frozenset({"view", "view_as", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"})
_COPIES = frozenset({"alias", "clone", "contiguous", "detach"})

Range = tuple[int, int, int]
"""Axis, first entry, entry behind the last."""


def name_of(target: Any) -> str:
    """An operation's name without its overload."""
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet))


class NodeAliases:
    """Of one graph: from where each node's numbers may be read instead."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.holder: dict[fx.Node, fx.Node] = {}
        """The earliest node that holds a node's numbers in the same order, maybe in another shape."""
        for node in nodes:
            self.holder[node] = self._holder(node)

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """What must be known to know a node."""
        held = self.holder[node]
        return [held] if held is not node else list(node.all_input_nodes)

    def _holder(self, node: fx.Node) -> fx.Node:
        if node.op != "call_function" or node.target is operator.getitem or not _floats(node):
            return node
        op = name_of(node.target)
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or not _floats(first):
            return node
        if (op in _VIEWS or op in _COPIES) and node.meta["val"].dtype == first.meta["val"].dtype:
            return self.holder[first]
        if op == "slice":
            return self._read(node, first)
        source = node.args[1] if op == "slice_scatter" and len(node.args) > 1 else None
        if isinstance(source, fx.Node) and _whole(node, _range(node, 2)) and _shape(source) == _shape(node):
            return self.holder[source]
        return node

    def _read(self, node: fx.Node, first: fx.Node) -> fx.Node:
        """Of a slice: all of it, or just what was written last."""
        wanted = _range(node, 1)
        if wanted is None:
            return node
        if _whole(first, wanted):
            return self.holder[first]
        written = first
        while name_of(written.target) in _COPIES and isinstance(written.args[0], fx.Node):
            written = written.args[0]
        source = written.args[1] if name_of(written.target) == "slice_scatter" else None
        if isinstance(source, fx.Node) and _range(written, 2) == wanted and _shape(source) == _shape(node):
            return self.holder[source]
        return node


def _floats(node: fx.Node) -> bool:
    example = node.meta.get("val")
    return isinstance(example, torch.Tensor) and (example.is_floating_point() or example.is_complex())


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _range(node: fx.Node, at: int) -> Range | None:
    """The run of entries that a slice, or a write into one, is about; its axis is argument `at`. None if it has
    steps."""
    given = dict(zip(("dim", "start", "end", "step"), node.args[at:], strict=False)) | dict(node.kwargs)
    shape = _shape(cast(fx.Node, node.args[0]))
    axis, step = given.get("dim", 0), given.get("step", 1)
    if not isinstance(axis, int) or step != 1 or not shape:
        return None
    axis %= len(shape)
    start, end = given.get("start"), given.get("end")
    first, last, _ = slice(cast(int | None, start), cast(int | None, end)).indices(shape[axis])
    return axis, first, max(first, last)


def _whole(node: fx.Node, run: Range | None) -> bool:
    return run is not None and run[1] == 0 and run[2] == _shape(node)[run[0]]
