"""Axes along which nothing varies: repeated ones, and those of one entry whose size is the architecture's, not the example's.

A shift is constant along an axis of one entry. That proves nothing where longer inputs make the axis longer, as an axis of
tokens; but the output axis of `nn.Linear(width, 1)` has one entry for all inputs. Such an axis is followed from the
weight that makes it, through operations that keep every axis.
"""

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import COPIES, name_of

_KEEPING = COPIES | {
    "add", "sub", "rsub", "mul", "div", "neg", "dropout", "native_dropout", "tanh", "relu", "gelu", "silu", "sigmoid", "exp",
    "softplus", "clamp", "masked_fill",
}  # fmt: skip
"""Operations whose output has the axes of their first argument, or of two that are broadcast."""
_LARGEST_DEPTH = 64


def has_fixed_size(node: object, axis: int, depth: int = 0) -> bool:
    """Return True if the size of a node's axis is that of a weight for every input.

    Args:
        node: a node of the graph, whose axis has one entry.
        axis: the axis, not negative.
        depth: number of operations followed so far.
    """
    if not isinstance(node, fx.Node) or depth > _LARGEST_DEPTH:
        return False
    if node.op == "placeholder":
        return _is_stored(node)
    op, rank = name_of(node.target), _rank(node)
    if op in ("linear", "conv1d", "conv2d", "conv3d", "convolution"):
        return _is_stored(node.args[1]) and axis == (rank - 1 if op == "linear" else 1)
    if op in ("addmm", "mm"):
        return _is_stored(node.args[-1]) and axis == 1
    # Any other operation may make an axis of one entry out of a longer one (a slice, a mean), so it ends the search.
    if op not in _KEEPING:
        return False
    # A broadcast axis of one entry has one entry in every operand that has it, so each of these must have a fixed size.
    operands = [each for each in node.args[:2] if isinstance(each, fx.Node)]
    places = [(each, axis - (rank - _rank(each))) for each in operands]
    return any(at >= 0 for _, at in places) and all(
        at < 0 or has_fixed_size(each, at, depth + 1) for each, at in places
    )


def is_repeated(node: object, axis: int) -> bool:
    """Return True if a node repeats one entry along an axis, as `index.unsqueeze(-1).expand(-1, -1, width)` does."""
    node = node[0] if isinstance(node, tuple) and node else node
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return False
    op, given = name_of(node.target), node.args[0] if node.args else None
    if op in COPIES:
        return is_repeated(given, axis)
    if op not in ("expand", "repeat") or not isinstance(given, fx.Node):
        return False
    at = axis - (_rank(node) - _rank(given))
    return at < 0 or given.meta["val"].shape[at] == 1


def _rank(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else -1


def _is_stored(node: object) -> bool:
    """True for a parameter or buffer, or its transpose."""
    while (
        isinstance(node, fx.Node)
        and node.op == "call_function"
        and name_of(node.target) in ("t", "transpose", "permute")
    ):
        node = node.args[0]
    # torch.export begins the names of parameters' placeholders with p_ and those of buffers with b_.
    return isinstance(node, fx.Node) and node.op == "placeholder" and node.name.startswith(("p_", "b_"))
