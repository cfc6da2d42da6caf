"""Nodes of a graph that hold the same numbers in the same order as an earlier node.

After functionalisation, a kernel that works in a buffer is a chain of writes into the flattened buffer and of reads
from it. A read returns the numbers of the last write, and a view of a view is a view of the first node. Resolved this
way, an axis that was flattened for the buffer is an axis again after it.
"""

import operator
from collections.abc import Iterable
from typing import cast

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import COPIES, VIEWS, name_of

Range = tuple[int, int, int]
"""Axis, first entry, entry after the last."""


class NodeAliases:
    """Maps each node of a graph to the earliest node with the same numbers."""

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.holder: dict[fx.Node, fx.Node] = {}
        """The earliest node with the same numbers in the same order, possibly in another shape."""
        for node in nodes:
            self.holder[node] = self._holder(node)

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """Return the nodes whose values determine a node's value."""
        holder = self.holder[node]
        return [holder] if holder is not node else list(node.all_input_nodes)

    def _holder(self, node: fx.Node) -> fx.Node:
        if node.op != "call_function" or node.target is operator.getitem or not _floats(node):
            return node
        op = name_of(node.target)
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node) or not _floats(first):
            return node
        if _keeps_numbers(node):
            return self.holder[first]
        if op == "slice":
            return self._read(node, first)
        source = node.args[1] if op == "slice_scatter" and len(node.args) > 1 else None
        # A write that covers the whole buffer leaves none of its numbers.
        if isinstance(source, fx.Node) and _whole(node, _range(node, 2)) and _shape(source) == _shape(node):
            return self.holder[source]
        return node

    def _read(self, node: fx.Node, first: fx.Node) -> fx.Node:
        """The node with a slice's numbers: the sliced one if the slice is whole, or the last write into the same range."""
        wanted = _range(node, 1)
        if wanted is None:
            return node
        if _whole(first, wanted):
            return self.holder[first]
        # Only the last write is looked at: an earlier one to this range may have been overwritten in part since.
        written = first
        while name_of(written.target) in COPIES and _keeps_numbers(written):
            written = cast(fx.Node, written.args[0])
        source = written.args[1] if name_of(written.target) == "slice_scatter" else None
        if isinstance(source, fx.Node) and _range(written, 2) == wanted and _shape(source) == _shape(node):
            return self.holder[source]
        return node


def _keeps_numbers(node: fx.Node) -> bool:
    """True for a copy or view of its first argument, of its type: the same bits as another type, or rounded ones, are other
    numbers."""
    first = node.args[0] if node.args else None
    if name_of(node.target) not in VIEWS | COPIES or not isinstance(first, fx.Node):
        return False
    return bool(node.meta["val"].dtype == first.meta["val"].dtype)


def _floats(node: fx.Node) -> bool:
    example = node.meta.get("val")
    return isinstance(example, torch.Tensor) and (example.is_floating_point() or example.is_complex())


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _range(node: fx.Node, at: int) -> Range | None:
    """The range of a slice, or of a write into one, whose axis is argument `at`. None if it has steps."""
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
