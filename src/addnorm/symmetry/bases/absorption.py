"""Constants that a graph can take over elsewhere: what is lost at one value, and the parameters that restore it.

If a value loses a constant, the same for every token, each operation that reads it must restore the difference. A linear map
adds W b to its bias or passes it on; a sum passes it on or takes it from the other term; a softmax over keys and a layer norm
remove what is equal in all their entries. Anything else cannot. No weight decides whether a constant can go: without numbers,
random ones stand for W b, so that a model on the meta device is enough for the counts.
"""

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, fx

from addnorm.redundancy.execution.operation_names import LOG_SOFTMAXES, SOFTMAXES
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rules.shapes import REORDERING
from addnorm.symmetry.bases.change import Weights
from addnorm.symmetry.bases.graph import PASSING, Operations, is_equal, places_of

Moves = list[tuple[str, Tensor]]
"""Parameters and what is added to them, broadcast over a table's rows."""


class Stuck(Exception):
    """Some operation would show the loss."""


class Absorption(Operations):
    """A graph's operations, and what they do to constants."""

    def __init__(self, program: Program, folded: Collection[str] = (), with_zeros: Collection[str] = ()) -> None:
        super().__init__(program, folded)
        self.with_zeros = frozenset(with_zeros)
        """Parameters with a zero, through which no constant can be given back."""
        self.zeros_met: set[str] = set()
        """Those of them that a constant would have to pass."""
        self._random = torch.Generator().manual_seed(0)
        self._level: int | None = None
        """While a constant is followed that all maps make equal in all channels: the most results of any of them."""

    def passes_level(self, node: fx.Node, lost: Tensor) -> bool:
        """True if a constant can go that the maps behind a value make equal in all channels, and there is such a constant: as
        many channels lose it as any of the maps has results."""
        self._level = 0
        try:
            self.restored(node, lost, None)
            return int((lost != 0).sum()) >= self._level > 0
        except Stuck:
            return False
        finally:
            self._level = None

    def restored(self, node: fx.Node, lost: Tensor, numbers: Weights | None, axis: int = -1) -> Moves:
        """Return what restores the outputs if a node's value loses a constant.

        Args:
            node: the value.
            lost: [channel], the same for every token.
            numbers: the weights; None to tell only whether it is possible.
            axis: the axis of the channels.

        Raises:
            Stuck: nothing can.
        """
        lost = lost.expand(self.shape(node)) if axis == -1 else _along(lost, axis, self.shape(node))
        return self._restored(node, lost, self.place[node], numbers)

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
        name, given, places = self.name(user), self.named[user], places_of(user, node)
        if user.target is operator.getitem:
            return self._restored(user, lost[user.args[1]], after, numbers)
        if len(places) != 1 and name != "scaled_dot_product_attention":
            raise Stuck
        if name in PASSING:
            return self._restored(user, lost, after, numbers)
        linear = self.linear(user)
        if linear is not None and linear[0] is node:
            return self._mapped(user, lost, after, numbers)
        if name == "conv1d" and places == ["input"]:
            return self._convolved(user, lost, after, numbers)
        if self.averages_rows(user, node) and all(is_equal(lost, axis) for axis in given["dim"]):
            made = lost.mean(given["dim"], keepdim=given.get("keepdim", False))
            return self._restored(user, made, after, numbers)
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
        if name == "layer_norm" and places == ["input"] and is_equal(lost, -1):
            return []
        if name in SOFTMAXES | LOG_SOFTMAXES and given["dim"] in (-1, len(self.shape(user)) - 1) and is_equal(lost, -1):
            return []
        if self.is_masked(user, node):
            return self._restored(user, lost.expand(self.shape(user)), after, numbers)
        if name == "scaled_dot_product_attention":
            return self._attended(user, lost, places, after, numbers)
        if name in ("matmul", "bmm", "baddbmm") and places in (["other"], ["mat2"], ["batch2"]):
            return self._multiplied(user, lost, after, numbers)
        raise Stuck

    def _mapped(self, node: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        linear = self.linear(node)
        assert linear is not None
        row = _one_row(lost)
        if self._level is not None:
            self._level = max(self._level, self.shape(node)[-1])
            change = torch.ones(self.shape(node)[-1], dtype=torch.float64)
        elif numbers is None:
            change = torch.randn(self.shape(node)[-1], generator=self._random, dtype=torch.float64)
        else:
            change = self.matrix(node, numbers) @ row
        bias = self.parameter(linear[3])
        return [(bias, change)] if bias else self._restored(node, change.expand(self.shape(node)), after, numbers)

    def _convolved(self, node: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        """A convolution over tokens [batch, channel, token]: without padding, a constant gives one."""
        given, shape = self.named[node], self.shape(node)
        if len(shape) != 3 or given.get("padding", [0]) not in ([0], "valid") or given["weight"] not in self.parameters:
            raise Stuck
        if not is_equal(lost, 0) or not is_equal(lost, 2):
            raise Stuck
        if numbers is None:
            change = torch.randn(shape[1], generator=self._random, dtype=torch.float64)
        else:
            taps = self._number(given["weight"], numbers).sum(-1)
            parts = lost[0, :, 0].reshape(given.get("groups", 1), 1, -1)
            change = (taps.reshape(len(parts), -1, taps.shape[1]) * parts).sum(-1).flatten()
        bias = self.parameter(given.get("bias"))
        return [(bias, change)] if bias else self._restored(node, _along(change, 1, shape), after, numbers)

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
            return self._written(other, node, _one_row(lost), after, numbers)

    def _written(self, node: fx.Node, user: fx.Node, row: Tensor, after: int, numbers: Weights | None) -> Moves:
        """Moves that add a constant to a term which one sum alone reads, by a parameter later in the graph than the loss."""
        if self.users[node] != [user] or node in self.observed or len(places_of(user, node)) != 1:
            raise Stuck
        if self.parameter(node):
            return [(self.parameter(node), row)]
        given, linear, is_later = self.named[node], self.linear(node), self.place[node] > after
        if linear is not None or self.name(node) == "layer_norm":
            bias = self.parameter(linear[3] if linear is not None else given.get("bias"))
            if bias and is_later:
                return [(bias, row)]
        elif self.name(node) == "embedding":
            if self.parameter(given["weight"]) and is_later:
                return [(self.parameter(given["weight"]), row)]
        elif self.name(node) == "add" and "alpha" not in given:
            for each in (given["self"], given["other"]):
                if isinstance(each, fx.Node) and self.shape(each)[-1:] == self.shape(node)[-1:]:
                    if self.parameter(each) and not is_later:
                        continue
                    try:
                        return self._written(each, node, row, after, numbers)
                    except Stuck:
                        continue
        elif len(node.all_input_nodes) == 1 and self.keeps_last(node, node.all_input_nodes[0]):
            return self._written(node.all_input_nodes[0], node, row, after, numbers)
        for data in node.all_input_nodes if self.name(node) == "mul" else ():
            gain = self.is_gain(node, data)
            if gain is not None and self.parameters[gain] in self.with_zeros:
                self.zeros_met.add(self.parameters[gain])
            elif gain is not None:
                return self._written(data, node, row / self._number(gain, numbers), after, numbers)
        raise Stuck

    def _attended(self, node: fx.Node, lost: Tensor, places: list[str], after: int, numbers: Weights | None) -> Moves:
        # What is equal for all keys cancels in the softmax, whatever the query; the weights of values add up to one.
        if places == ["attn_mask"] and is_equal(lost, -1):
            return []
        if not set(places) <= {"key", "value"} or self.named[node].get("dropout_p", 0.0) or not is_equal(lost, -2):
            raise Stuck
        if "value" not in places:
            return []
        shape = self.shape(node)
        if lost.dim() > 2 and lost.shape[-3] != shape[-3]:
            lost = lost.repeat_interleave(shape[-3] // lost.shape[-3], -3)
        return self._restored(node, lost[..., :1, :].expand(shape), after, numbers)

    def _multiplied(self, node: fx.Node, lost: Tensor, after: int, numbers: Weights | None) -> Moves:
        first = self.named[node]["batch1" if self.name(node) == "baddbmm" else "self"]
        while self.name(first) in PASSING or (
            self.name(first) in ("expand", "view", "reshape") and self.keeps_last(first, first.args[0])
        ):
            first = first.args[0]
        if self.name(first) in SOFTMAXES and self.named[first]["dim"] in (
            -1,
            len(self.shape(first)) - 1,
        ):
            if not is_equal(lost, -2):
                raise Stuck
            return self._restored(node, lost[..., :1, :].expand(self.shape(node)), after, numbers)
        if is_equal(lost, -1) and self.ignores_mean(node):
            return []
        raise Stuck

    def _number(self, parameter: fx.Node, numbers: Weights | None) -> Tensor:
        if numbers is None:
            return torch.randn(self.shape(parameter), generator=self._random, dtype=torch.float64)
        return numbers[self.parameters[parameter]]

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
                elif self.name(user) in PASSING:
                    left.append((user, ids))
                elif self.name(user) in REORDERING:
                    others = {each: torch.full(self.shape(each), -1) for each in user.all_input_nodes}
                    left.append((user, self.reordered(user, {**others, at: ids})))
                else:
                    for each in ids.unique().tolist():
                        if each >= 0:
                            ends[each].add((user, *places_of(user, at)))
        groups: dict[frozenset[tuple[Any, ...]], list[int]] = {}
        for channel, each in enumerate(ends):
            groups.setdefault(frozenset(each), []).append(channel)
        return [torch.tensor(each) for each in groups.values()]


def _along(row: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    """Numbers along one axis, and the same at all places of the others."""
    return row.reshape(-1, *[1] * (len(shape) - axis - 1)).expand(shape)


def _of_shape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return what a parameter of some shape adds where it is broadcast: a row, or one for each position.

    Raises:
        Stuck: it cannot add this.
    """
    if len(shape) > tensor.dim():
        raise Stuck
    for axis, size in enumerate((1,) * (tensor.dim() - len(shape)) + shape):
        if tensor.shape[axis] != size:
            if not is_equal(tensor, axis):
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
