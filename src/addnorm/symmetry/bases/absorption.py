"""Constants that a graph can take over elsewhere: what is lost at one value, and the parameters that restore it.

If a value loses a constant, the same for every token, each operation that reads it must restore the difference. A linear map
adds W b to its bias or passes it on; a sum passes it on or takes it from the other term; a softmax over keys and a layer norm
remove what is equal in all their entries. Anything else cannot. No weight decides whether a constant can go: without numbers,
random ones stand for W b, so that a model on the meta device is enough for the counts.
"""

import math
import operator
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, fx

from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.call import operation
from addnorm.symmetry.actions.rules.shapes import REORDERING
from addnorm.symmetry.bases.change import Weights

Moves = list[tuple[str, Tensor]]
"""Parameters and what is added to them, broadcast over a table's rows."""
COPIES = frozenset(
    {"to", "_to_copy", "type_as", "float", "double", "contiguous", "dropout", "alias", "clone", "detach"}
    | {"lift_fresh_copy"}
)
_NEVER_CHOSEN = -1e30
"""A mask's number below this has probability zero, whatever the other scores are."""
_SOFTMAXES = frozenset({"softmax", "_softmax", "_safe_softmax", "log_softmax"})


class Stuck(Exception):
    """Some operation would show the loss."""


class Absorption:
    """A graph's operations, and what they do to constants."""

    def __init__(self, program: Program, folded: Collection[str] = ()) -> None:
        self.folded = frozenset(folded)
        """Gains of one: matrices before them have taken them over."""
        self.nodes = program.nodes
        self.place = {node: at for at, node in enumerate(program.nodes)}
        self.observed = frozenset(program.observed)
        self.constants = program.constants
        self.users = {node: [each for each in node.users if each in self.place] for node in program.nodes}
        self.named = {node: arguments(node) for node in program.nodes}
        self.parameters = {
            node: program.parameters[node.name]
            for node in program.nodes
            if node.op == "placeholder"
            and node.name in program.parameters
            and program.parameters[node.name] not in program.buffers
        }
        self.count = Counter(
            name for node, name in self.parameters.items() for user in self.users[node] for _ in _places(user, node)
        )
        self._random = torch.Generator().manual_seed(0)
        self._ignored: dict[fx.Node, bool] = {}

    # what a node is

    def name(self, node: fx.Node) -> str:
        return operation(node.target) if node.op == "call_function" else ""

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        value = node.meta.get("val")
        return tuple(value.shape) if isinstance(value, Tensor) else ()

    def parameter(self, node: Any) -> str:
        """The parameter that a node is, if nothing else reads it; otherwise nothing."""
        name = self.parameters.get(node, "") if isinstance(node, fx.Node) else ""
        return name if name and self.count[name] == 1 and node not in self.observed else ""

    def linear(self, node: fx.Node) -> "tuple[fx.Node, fx.Node, bool, Any] | None":
        """The data, the weight, whether it is held as [in, out], and the bias of a linear map."""
        given, name = self.named[node], self.name(node)
        if name == "linear":
            data, weight, is_transposed, bias = given["input"], given["weight"], False, given.get("bias")
        elif name == "addmm" and not {"alpha", "beta"} & given.keys():
            data, weight, is_transposed, bias = given["mat1"], given["mat2"], True, given["self"]
        elif name in ("matmul", "mm"):
            data, weight, is_transposed, bias = given["self"], given.get("other", given.get("mat2")), True, None
        else:
            return None
        turns = ("t", "transpose", "mT", "permute")
        if self.name(weight) in turns and list(weight.args[1:]) != [[0, 1]] and len(self.users[weight]) == 1:
            weight, is_transposed = weight.args[0], not is_transposed
        if weight not in self.parameters or len(self.shape(weight)) != 2 or data in self.parameters:
            return None
        return data, weight, is_transposed, bias

    def matrix(self, node: fx.Node, numbers: Weights) -> Tensor:
        """A linear map's weight as [out, in], of the weights' own storage."""
        linear = self.linear(node)
        assert linear is not None
        weight = numbers[self.parameters[linear[1]]]
        return weight.T if linear[2] else weight

    def with_offset(self, node: fx.Node) -> tuple[fx.Node, float]:
        """A node and 0, or what it adds a number to, and the number: a gain of 1 + w."""
        given = self.named[node]
        if self.name(node) == "add" and isinstance(given["other"], int | float) and "alpha" not in given:
            return given["self"], float(given["other"])
        return node, 0.0

    def is_gain(self, node: fx.Node, data: fx.Node) -> "fx.Node | None":
        """The parameter by which a product multiplies data along the last axis."""
        given = self.named[node]
        one, other = given.get("self"), given.get("other")
        factor = other if one is data else one
        if self.name(node) != "mul" or factor not in self.parameters or self.shape(node) != self.shape(data):
            return None
        return factor if self.shape(factor) in ((self.shape(node)[-1],), ()) else None

    # what is added to all entries of the last axis

    def ignores_mean(self, node: fx.Node) -> bool:
        """True if nothing changes when some function of the data is added to all entries along the last axis."""
        if node not in self._ignored:
            self._ignored[node] = (
                node not in self.observed
                and bool(self.users[node])
                and all(self._removes_mean(user, node) for user in self.users[node])
            )
        return self._ignored[node]

    def _removes_mean(self, user: fx.Node, node: fx.Node) -> bool:
        given, name, shape = self.named[user], self.name(user), self.shape(node)
        if not shape or shape[-1] < 2:
            return False
        if name == "layer_norm":
            return _places(user, node) == ["input"] and len(given["normalized_shape"]) == 1
        if name in _SOFTMAXES:
            return given["dim"] in (-1, len(shape) - 1)
        if name == "topk" and given.get("dim", -1) in (-1, len(shape) - 1):
            # The largest stay the largest: what reads their places sees nothing, what reads their values has to remove it.
            values = [each for each in self.users[user] if each.args[1] == 0]
            return all(self.ignores_mean(each) for each in values)
        if name == "where" and _places(user, node) == ["self"] and self._fill(given["other"]) < _NEVER_CHOSEN:
            return self.ignores_mean(user)
        if name in ("add", "sub") and "alpha" not in given:
            return self.shape(user)[-1] == shape[-1] and self.ignores_mean(user)
        gain = self.is_gain(user, node)
        is_number = name in ("mul", "div") and isinstance(given.get("other"), int | float)
        if is_number or (gain is not None and self.parameters[gain] in self.folded):
            return self.ignores_mean(user)
        return self.keeps_last(user, node) and self.ignores_mean(user)

    def _fill(self, given: Any) -> float:
        """The number that a mask puts in place of a score; NaN for what is not one number."""
        while isinstance(given, fx.Node) and self.name(given) in COPIES:
            given = given.args[0]
        held = self.constants.get(given.name) if isinstance(given, fx.Node) else given
        if isinstance(held, Tensor) and held.numel() == 1:
            held = held.item()
        return float(held) if isinstance(held, int | float) else math.nan

    def keeps_last(self, user: fx.Node, node: fx.Node) -> bool:
        """True if an operation only orders, copies or selects whole rows along the last axis."""
        if self.name(user) in COPIES:
            return True
        if self.name(user) not in REORDERING or not self.shape(user):
            return False
        last = torch.arange(self.shape(node)[-1])
        shapes = {each: self.shape(each) for each in user.all_input_nodes}
        # An empty cache, which a first call joins its keys to, has no rows.
        others = {
            each: torch.zeros(shape, dtype=torch.int64) for each, shape in shapes.items() if shape[-1:] != last.shape
        }
        rows = {each: last.expand(shape) for each, shape in shapes.items() if each not in others}
        made = self.reordered(user, {**others, **rows})
        return made.shape[-1:] == last.shape and bool((made == last).all())

    # constants

    def restored(self, node: fx.Node, lost: Tensor, numbers: Weights | None) -> Moves:
        """Return what restores the outputs if a node's value loses a constant.

        Args:
            node: the value.
            lost: [channel], the same for every token.
            numbers: the weights; None to tell only whether it is possible.

        Raises:
            Stuck: nothing can.
        """
        return self._restored(node, lost.expand(self.shape(node)), self.place[node], numbers)

    def _restored(self, node: fx.Node, lost: Any, after: int, numbers: Weights | None) -> Moves:
        if isinstance(lost, Tensor) and not bool(lost.any()):
            return []
        if node in self.observed:
            raise Stuck
        moves: Moves = []
        for user in self.users[node]:
            moves += self._read(user, node, lost, after, numbers)
        return moves

    def _read(self, user: fx.Node, node: fx.Node, lost: Any, after: int, numbers: Weights | None) -> Moves:
        name, given, places = self.name(user), self.named[user], _places(user, node)
        if user.target is operator.getitem:
            return self._restored(user, lost[user.args[1]], after, numbers)
        if len(places) != 1 and name != "scaled_dot_product_attention":
            raise Stuck
        if name in COPIES:
            return self._restored(user, lost, after, numbers)
        linear = self.linear(user)
        if linear is not None and linear[0] is node:
            return self._mapped(user, lost, after, numbers)
        if name in REORDERING:
            others = {each: torch.zeros(self.shape(each)) for each in user.all_input_nodes}
            return self._restored(user, self.reordered(user, {**others, node: lost}), after, numbers)
        if name in ("add", "sub") and "alpha" not in given:
            return self._summed(user, node, -lost if name == "sub" and places == ["other"] else lost, after, numbers)
        if name in ("mul", "div") and isinstance(given.get("other"), int | float):
            factor = given["other"] if name == "mul" else 1 / given["other"]
            return self._restored(user, lost * factor, after, numbers)
        gain = self.is_gain(user, node)
        if gain is not None:
            factor = self._number(gain, numbers)
            return self._restored(user, lost * factor, after, numbers)
        if name == "layer_norm" and places == ["input"] and _is_equal(lost, -1):
            return []
        if name in _SOFTMAXES and given["dim"] in (-1, len(self.shape(user)) - 1) and _is_equal(lost, -1):
            return []
        if name == "where" and places == ["self"] and self._fill(given["other"]) < _NEVER_CHOSEN:
            return self._restored(user, lost, after, numbers)
        if name == "scaled_dot_product_attention":
            return self._attended(user, lost, places, after, numbers)
        if name in ("matmul", "bmm", "baddbmm") and places in (["other"], ["mat2"], ["batch2"]):
            return self._multiplied(user, lost, after, numbers)
        raise Stuck

    def _mapped(self, node: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        linear = self.linear(node)
        assert linear is not None
        row = _one_row(lost)
        if numbers is None:
            change = torch.randn(self.shape(node)[-1], generator=self._random, dtype=torch.float64)
        else:
            change = self.matrix(node, numbers) @ row
        bias = self.parameter(linear[3])
        return [(bias, change)] if bias else self._restored(node, change.expand(self.shape(node)), after, numbers)

    def _summed(self, node: fx.Node, term: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        given = self.named[node]
        other = given["other"] if given["self"] is term else given["self"]
        if self.parameter(other) and self.shape(other)[-1:] == self.shape(node)[-1:] and self.name(node) == "add":
            return [(self.parameter(other), _of_shape(lost, self.shape(other)))]
        lost = lost.expand(self.shape(node))
        try:
            return self._restored(node, lost, after, numbers)
        except Stuck:
            if not isinstance(other, fx.Node) or self.name(node) != "add":
                raise
            return [(self._writer(other, node, after), _one_row(lost))]

    def _writer(self, node: fx.Node, user: fx.Node, after: int) -> str:
        """The parameter that adds a constant to a term which one sum alone reads, later in the graph than the loss."""
        if self.users[node] != [user] or node in self.observed or len(_places(user, node)) != 1:
            raise Stuck
        if self.parameter(node):
            return self.parameter(node)
        given, linear = self.named[node], self.linear(node)
        if linear is not None or self.name(node) == "layer_norm":
            bias = self.parameter(linear[3] if linear is not None else given.get("bias"))
            if bias and self.place[node] > after:
                return bias
        elif self.name(node) == "embedding":
            if self.parameter(given["weight"]) and self.place[node] > after:
                return self.parameter(given["weight"])
        elif self.name(node) == "add" and "alpha" not in given:
            for each in (given["self"], given["other"]):
                if isinstance(each, fx.Node) and self.shape(each)[-1:] == self.shape(node)[-1:]:
                    try:
                        return self.parameter(each) or self._writer(each, node, after)
                    except Stuck:
                        continue
        elif len(node.all_input_nodes) == 1 and self.keeps_last(node, node.all_input_nodes[0]):
            return self._writer(node.all_input_nodes[0], node, after)
        raise Stuck

    def _attended(self, node: fx.Node, lost: Tensor, places: list[str], after: int, numbers: Weights | None) -> Moves:
        # What is equal for all keys cancels in the softmax, whatever the query; the weights of values add up to one.
        if places == ["attn_mask"] and _is_equal(lost, -1):
            return []
        if not set(places) <= {"key", "value"} or self.named[node].get("dropout_p", 0.0) or not _is_equal(lost, -2):
            raise Stuck
        if "value" not in places:
            return []
        shape = self.shape(node)
        if lost.dim() > 2 and lost.shape[-3] != shape[-3]:
            lost = lost.repeat_interleave(shape[-3] // lost.shape[-3], -3)
        return self._restored(node, lost[..., :1, :].expand(shape), after, numbers)

    def _multiplied(self, node: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        first = self.named[node]["batch1" if self.name(node) == "baddbmm" else "self"]
        while self.name(first) in COPIES or (
            self.name(first) in ("expand", "view", "reshape") and self.keeps_last(first, first.args[0])
        ):
            first = first.args[0]
        if self.name(first) in _SOFTMAXES - {"log_softmax"} and self.named[first]["dim"] in (
            -1,
            len(self.shape(first)) - 1,
        ):
            if not _is_equal(lost, -2):
                raise Stuck
            return self._restored(node, lost[..., :1, :].expand(self.shape(node)), after, numbers)
        if _is_equal(lost, -1) and self.ignores_mean(node):
            return []
        raise Stuck

    def _number(self, parameter: fx.Node, numbers: Weights | None) -> Tensor:
        if numbers is None:
            return torch.randn(self.shape(parameter), generator=self._random, dtype=torch.float64)
        return numbers[self.parameters[parameter]]

    def reordered(self, node: fx.Node, given: dict[fx.Node, Tensor]) -> Any:
        first = given[node.all_input_nodes[0]]
        if self.name(node) in ("view", "reshape", "_unsafe_view"):
            return first.reshape(self.shape(node))
        arguments, named = fx.node.map_arg((node.args, node.kwargs), lambda each: given[each])
        return node.target(*arguments, **named)  # type: ignore[operator]

    def parts(self, node: fx.Node) -> list[Tensor]:
        """The channels of a value in sets that the same operations read, as the queries, keys and values of one matrix."""
        size = self.shape(node)[-1]
        ends: list[set[tuple[Any, ...]]] = [set() for _ in range(size)]
        left: list[tuple[fx.Node, Any]] = [(node, torch.arange(size).expand(self.shape(node)))]
        while left:
            at, ids = left.pop()
            for user in self.users[at]:
                if user.target is operator.getitem:
                    left.append((user, ids[user.args[1]]))
                elif self.name(user) in COPIES:
                    left.append((user, ids))
                elif self.name(user) in REORDERING:
                    others = {each: torch.full(self.shape(each), -1) for each in user.all_input_nodes}
                    left.append((user, self.reordered(user, {**others, at: ids})))
                else:
                    for each in ids.unique().tolist():
                        if each >= 0:
                            ends[each].add((user, *_places(user, at)))
        groups: dict[frozenset[tuple[Any, ...]], list[int]] = {}
        for channel, each in enumerate(ends):
            groups.setdefault(frozenset(each), []).append(channel)
        return [torch.tensor(each) for each in groups.values()]


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a node, by their names in the schema of its operation; none for a Python function."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    return dict(zip((each.name for each in schema.arguments), node.args, strict=False)) | dict(node.kwargs)


def _places(user: fx.Node, node: fx.Node) -> list[str]:
    """The arguments that a node is."""
    made: list[str] = []
    for name, each in arguments(user).items() or (("", each) for each in user.args):
        parts: Iterable[Any] = each if isinstance(each, list | tuple) else (each,)
        made += [name for part in parts if part is node]
    return made


def _is_equal(tensor: Tensor, axis: int) -> bool:
    return bool((tensor == tensor.narrow(axis, 0, 1)).all())


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return what a parameter of some shape adds where it is broadcast: a row, or one for each position.

    Raises:
        Stuck: it cannot add this.
    """
    if len(shape) > tensor.dim():
        raise Stuck
    for axis, size in enumerate((1,) * (tensor.dim() - len(shape)) + shape):
        if tensor.shape[axis] != size:
            if not _is_equal(tensor, axis):
                raise Stuck
            tensor = tensor.narrow(axis, 0, 1)
    return tensor.reshape(shape)


def _one_row(tensor: Tensor) -> Tensor:
    """The row that all tokens have.

    Raises:
        Stuck: they differ.
    """
    rows = tensor.reshape(-1, tensor.shape[-1])
    if not bool((rows == rows[0]).all()):
        raise Stuck
    return rows[0]
