"""Operations on the channels of a graph, one method each: linear maps, sums and products."""

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from addnorm.redundancy.execution.operation_names import name_of
from addnorm.symmetry.actions.rules.shapes import INDEXING
from addnorm.symmetry.bases.channels import NOBODY, AxisUse, Gain, Ids, Requirements
from addnorm.symmetry.bases.graph import arguments
from addnorm.symmetry.bases.states import (
    Data,
    Entries,
    NoRequirement,
    WeightAxes,
    ids_of,
    of_one_token,
    still,
    stop,
    varies_along,
)


class Maps:
    """One operation of the graph and the states of what it reads."""

    def __init__(self, given: Requirements, node: fx.Node, states: Mapping[fx.Node, Any]) -> None:
        self.given, self.node, self.states = given, node, states
        self.name = name_of(node.target)
        self.named = arguments(node)
        self.unread: set[tuple[str, int | None]] = set()
        """Axes of weights along which all that is read is multiplied by zero."""
        value = node.meta.get("val")
        self.shape = tuple(value.shape) if isinstance(value, Tensor) else ()

    def _of(self, name: str) -> Any:
        given = self.named.get(name)
        return self.states[given] if isinstance(given, fx.Node) else given

    def _entries(self, name: str) -> Entries:
        state = self._of(name)
        if not isinstance(state, Entries) or state.squared:
            raise NoRequirement
        return state

    def _shape_of(self, name: str) -> tuple[int, ...]:
        given = self.named.get(name)
        return tuple(given.meta["val"].shape) if isinstance(given, fx.Node) else ()

    # linear maps

    def _map(self, data: str, weight: str, bias: str, *, is_transposed: bool = False) -> Entries:
        matrix = self._of(weight)
        if not isinstance(matrix, WeightAxes) or len(matrix.axes) != 2 or matrix.offset:
            raise NoRequirement
        out, into = (matrix.axes[1], matrix.axes[0]) if is_transposed else matrix.axes
        made = self._mapped(self._of(data), matrix, out, into, self.shape[-1])
        self._add(bias, made)
        return Entries(torch.from_numpy(made).expand(self.shape))

    def _add(self, name: str, made: Ids) -> None:
        """Add an argument, if it is given, with one number for each of these channels, to them."""
        bias = self._of(name)
        if bias is None:
            return
        if isinstance(bias, Data):  # numbers that do not move, or that are computed: each channel keeps its own
            self.given.kind(made, "still")
            self.given.pinned.append(made)
            return
        if not isinstance(bias, WeightAxes) or bias.offset or self._shape_of(name) != made.shape:
            raise NoRequirement
        self.given.uses.append(AxisUse(bias.name, bias.axes[0], made, dual=False))

    def _mapped_columns(self, matrix: WeightAxes, columns: Entries) -> Entries:
        if len(matrix.axes) != 2 or matrix.offset or columns.second is not None:
            raise NoRequirement
        made = self._mapped(
            replace(columns, first=columns.first.transpose(-1, -2)), matrix, *matrix.axes, self.shape[-2]
        )
        return Entries(torch.from_numpy(made)[:, None].expand(self.shape))

    def _mapped(self, state: Any, matrix: WeightAxes, out: int, into: int, size: int) -> Ids:
        if isinstance(state, Entries):
            if state.second is not None:
                raise NoRequirement
            channels = of_one_token(state.first)
            if any(size > 1 for size in channels.shape[:-1]):
                raise NoRequirement  # rows of different channels meet one matrix
            channels = state.first.reshape(-1, state.first.shape[-1])[0]
            if not state.plain or state.squared:
                self.given.alone(ids_of(channels))
            power = 2 if state.squared else 1
            self.given.uses.append(AxisUse(matrix.name, into, ids_of(channels).copy(), dual=True, power=power))
        elif not isinstance(state, Data):
            raise NoRequirement
        elif state.value is not None and not bool(
            state.value.any()
        ):  # zeros, as at the start of a recurrence, read nothing
            self.unread.add((matrix.name, into))
        made = self.given.fresh(size)
        self.given.uses.append(AxisUse(matrix.name, out, made, dual=False))
        return made

    def _mapped_by_expert(self) -> Entries:
        """Tokens in the order of their experts, each group with a matrix of its own, [expert, in, out]."""
        state, matrix = (self.states[each] for each in self.node.all_input_nodes[:2])
        if not isinstance(matrix, WeightAxes) or len(matrix.axes) != 3 or matrix.offset:
            raise NoRequirement
        experts, into, out = matrix.axes
        if isinstance(state, Entries):
            if not state.plain or state.second is not None or state.squared or any(varies_along(state.first)[:-1]):
                raise NoRequirement
            read = ids_of(state.first[0]).copy()
            self.given.uses.append(AxisUse(matrix.name, into, read, dual=True, experts=experts))
        elif not isinstance(state, Data):
            raise NoRequirement
        made = self.given.fresh(self.shape[-1])
        self.given.by_expert(made, self.node.all_input_nodes[1].meta["val"].shape[0])
        self.given.uses.append(AxisUse(matrix.name, out, made, dual=False, experts=experts))
        return Entries(torch.from_numpy(made).expand(self.shape))

    def _vector(self, state: WeightAxes) -> Entries:
        """A parameter that is a value itself, such as a class token."""
        size = self.node.all_input_nodes[0].meta["val"].shape[-1:]
        if state.offset or state.experts is not None or not self.shape or size != self.shape[-1:]:
            raise NoRequirement
        made = self.given.fresh(self.shape[-1])
        self.given.uses.append(AxisUse(state.name, state.axes[-1], made, dual=False))
        return Entries(torch.from_numpy(made).expand(self.shape))

    def _look_up(self) -> Entries:
        table = self._of("weight")
        if not isinstance(table, WeightAxes) or table.offset:
            raise NoRequirement
        made = self.given.fresh(self.shape[-1])
        self.given.uses.append(AxisUse(table.name, table.axes[1], made, dual=False))
        return Entries(torch.from_numpy(made).expand(self.shape))

    # sums and products

    def _sum(self) -> Any:
        one, other = self._of("self"), self._of("other")
        if isinstance(other, Entries) and not isinstance(one, Entries):
            one, other = other, one
        if isinstance(one, WeightAxes) and isinstance(other, int | float) and self.name == "add":
            if "alpha" in self.named:
                raise NoRequirement
            return replace(one, offset=one.offset + other)
        if not isinstance(one, Entries) or one.squared:
            raise NoRequirement
        if isinstance(other, Data):  # such as positions that are not learned: they know one basis alone
            stop(self.given, one)
            return still(self.node)
        if isinstance(other, int | float):
            # Such as 1 + a: a bias may give back what a scale of the sum asks of the number, which no rule says.
            stop(self.given, one, is_unruled=True)
            return one
        first = one.first.expand(self.shape)
        if isinstance(other, WeightAxes):
            shape = self.node_shape(other)
            # A vector of a row per channel, [channel, 1], or a table whose rows hold the channels.
            long = [place for place, size in enumerate(shape) if size > 1]
            at = long[0] if len(long) == 1 else len(shape) - 1
            axis = len(self.shape) - len(shape) + at
            varies = varies_along(of_one_token(first).expand(self.shape))
            others = [each for place, each in enumerate(varies) if place != axis]
            if not one.plain or other.offset or any(others) or axis < 0 or at - len(shape) < -len(other.axes):
                raise NoRequirement
            channels = ids_of(first.movedim(axis, -1).reshape(-1, self.shape[axis])[0])
            self.given.uses.append(
                AxisUse(other.name, other.axes[at - len(shape)], channels, dual=False, experts=other.experts)
            )
            return Entries(first, one.second, one.plain)
        if not isinstance(other, Entries) or other.squared:
            raise NoRequirement
        second = other.first.expand(self.shape)
        if torch.equal(first, second) and one.second is None and other.second is None:
            return Entries(first, None, one.plain and other.plain)
        a, b = of_one_token(first), of_one_token(second)
        if not one.plain and not other.plain and a.shape == b.shape and not bool((a == b).any()):
            return Entries(first, second, False)
        if not one.plain or not other.plain or one.second is not None or other.second is not None:
            raise NoRequirement
        pairs = torch.stack([first.reshape(-1), second.reshape(-1)], 1).unique(dim=0).numpy()
        self.given.equal(pairs[:, 0], pairs[:, 1])
        return Entries(torch.where(first == NOBODY, second, first))

    def _quotient(self) -> Any:
        if isinstance(self._of("other"), Entries | WeightAxes):
            raise NoRequirement
        return self._product()

    def _product(self) -> Any:
        one, other = self._of("self"), self._of("other")
        if isinstance(one, Entries) and self.named.get("self") is self.named.get("other"):
            return replace(one, squared=True)
        names = ["self", "other"]
        for weight, data in ((one, other), (other, one)):
            is_moved = isinstance(weight, WeightAxes) and isinstance(data, Data) and not data.constant
            if is_moved and self._is_vector(self.node_shape(weight)):
                return self._scaled(weight)
        if not isinstance(one, Entries):
            one, other = other, one
            names.reverse()
        if not isinstance(one, Entries) or one.squared:
            raise NoRequirement
        if other is None or isinstance(other, int | float):
            return one
        if self.node.meta["val"].is_complex():
            return self._turned_pairs(one, other)
        first = one.first.expand(self.shape)
        varies = varies_along(first)
        shape = self._shape_before_copies(names[1])
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        if isinstance(other, WeightAxes):
            along_tokens = any(size > 1 and not is_varying for size, is_varying in zip(shape, varies, strict=True))
            if not along_tokens or shape[-1] == 1:
                return self._gained(one, first, other, self.node_shape(other))
            self.given.frozen.add(other.name)  # angles by position from a table: constants while it stays
            other = Data(True)
        differs = any(size > 1 and is_varying for size, is_varying in zip(shape, varies, strict=True))
        if isinstance(other, Data):
            # One channel alone, as of a pair that is rotated by position: no other is beside it, but its factor tells it apart.
            is_turned = other.constant and max(shape) > 1 and first.shape[-1] == 1
            if not differs and not is_turned:
                return replace(one, first=first, second=None if one.second is None else one.second.expand(self.shape))
            self.given.pinned.append(ids_of(first.unique()))  # these numbers know no other order of the channels
            if other.constant:
                return Entries(first, None if one.second is None else one.second.expand(self.shape), False)
            # Only channels with one factor may be mixed: those of one head behind its norm.
            sizes = [size if is_varying else 1 for size, is_varying in zip(shape, varies, strict=True)]
            token = of_one_token(first)
            factors = torch.arange(int(np.prod(sizes))).reshape(sizes).expand(token.shape)
            self.given.together(ids_of(token), ids_of(factors))
            return replace(one, first=first)
        if not isinstance(other, Entries) or other.squared or one.second is not None or other.second is not None:
            raise NoRequirement
        second = other.first.expand(self.shape)
        # One factor stays in place: of a gate and a value, the gate's side, which an activation has fixed already, such as
        # x σ(x). Else the side that something else reads, too.
        makers = [self._maker(name) for name in names]
        fixed = [
            (self._is_image(each), self.given.is_fixed(ids_of(each.first)), made is None)
            for each, made in zip((one, other), makers, strict=True)
        ]
        kept, still, maker = (first, second, makers[0]) if fixed[0] <= fixed[1] else (second, first, makers[1])
        is_matrix = maker is not None and name_of(maker.target) in ("linear", "mm", "addmm")
        if not (is_matrix and one.plain and other.plain and self._exchanged(kept, still)):
            self.given.kind(ids_of(still.unique()), "still")
        if any(is_varying for is_varying in varies_along(of_one_token(still))):
            self.given.alone(ids_of(of_one_token(kept)))
            pairs = torch.stack([kept.reshape(-1), still.reshape(-1)], 1).unique(dim=0).numpy()
            if len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1])):
                self.given.alike(pairs[:, 0], pairs[:, 1])
            else:  # gates of several heads that share their values: each has its place
                self.given.pinned += [pairs[:, 0], pairs[:, 1]]
        return Entries(kept)

    def _turned_pairs(self, one: Entries, other: Any) -> Entries:
        """Complex numbers times constants: each part of a pair has the other beside it, as in a rotation by position."""
        is_known = isinstance(other, Data) and other.constant
        if not is_known or not one.plain or one.second is not None or one.first.shape[:-1] != self.shape:
            raise NoRequirement
        self.given.pinned.append(ids_of(one.first.unique()))
        return Entries(one.first, one.first.flip(-1), False)

    def _shape_before_copies(self, name: str) -> tuple[int, ...]:
        """The shape of an argument before its numbers were copied along axes, as a norm's length often is."""
        node: Any = self.named[name]
        while isinstance(node, fx.Node) and name_of(node.target) in ("expand", "broadcast_to"):
            node = node.args[0]
        return tuple(node.meta["val"].shape) if isinstance(node, fx.Node) else ()

    def _maker(self, name: str) -> "fx.Node | None":
        """The operation that makes an argument's numbers, if nothing else reads them."""
        node: Any = self.named[name]
        while True:
            parts = [each.args[1] for each in node.users if each.target is operator.getitem]
            if len(node.users) != 1 and not len(parts) == len(node.users) == len(set(parts)):
                return None
            if node.target is not operator.getitem and name_of(node.target) not in INDEXING:
                return node
            node = node.args[0]

    def _exchanged(self, kept: Tensor, other: Tensor) -> bool:
        """Let the other factor be scaled, and by the inverse what makes the kept one: y = (a / c) (c b)."""
        pairs = torch.stack([kept.reshape(-1), other.reshape(-1)], 1).unique(dim=0).numpy()
        if not len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1])) or self._is_image(
            Entries(other)
        ):
            return False
        of = dict(pairs.tolist())
        writers = [use for use in self.given.uses if not use.dual and bool(np.isin(use.channels, pairs[:, 0]).any())]
        for use in writers:
            scales = np.array([of.get(each, NOBODY) for each in use.channels.tolist()])
            self.given.uses.append(AxisUse(use.parameter, use.axis, scales, dual=True, is_further=True))
        self.given.alone(pairs[:, 1])
        return bool(writers)

    def _is_image(self, state: Entries) -> bool:
        images = self.given.images
        return bool(images) and int(state.first.max()) in images

    def _gained(self, one: Entries, first: Tensor, other: WeightAxes, shape: tuple[int, ...]) -> Entries:
        if not one.plain or one.second is not None:
            # Behind a rotation by position, a channel that moves would need the other's gain, too.
            if not self.given.is_fixed(ids_of(first)):
                raise NoRequirement
            for each in (first, one.second):
                if each is not None:
                    self.given.alone(ids_of(each))
        token = first.reshape(-1, first.shape[-1])[0]
        if any(size > 1 for size in of_one_token(first).shape[:-1]) or len(token.unique()) != len(token):
            return self._gained_by_head(first, other, shape)
        if any(size > 1 for size in shape[:-1]) or (shape and shape[-1] not in (1, len(token))):
            raise NoRequirement
        is_vector = bool(shape) and shape[-1] > 1
        index = np.arange(len(token)) if is_vector else np.zeros(len(token), np.int64)
        made = self.given.fresh(len(token))
        axis = other.axes[-1] if is_vector else None
        self.given.gains.append(Gain(other.name, other.offset, index, ids_of(token).copy(), made, axis))
        return Entries(torch.from_numpy(made).expand(self.shape))

    def _gained_by_head(self, first: Tensor, other: WeightAxes, shape: tuple[int, ...]) -> Entries:
        # A gain that all heads share, as a norm of queries has, cannot go into one head's matrix. Behind a norm, which fixes
        # what it multiplies, it can be exchanged with what else scales its result, such as the gain of the keys.
        channels = ids_of(of_one_token(first))
        self.given.alone(channels)
        self.given.pinned.append(channels)
        if self.given.is_fixed(channels) and self._is_vector(shape):
            return self._scaled(other)
        self.given.frozen.add(other.name)
        return Entries(first)

    def _is_vector(self, shape: tuple[int, ...]) -> bool:
        return bool(shape) and set(shape[:-1]) <= {1} and shape[-1] == self.shape[-1]

    def _scaled(self, gain: WeightAxes) -> Entries:
        """The product of a gain and what does not move."""
        made = self.given.fresh(self.shape[-1])
        self.given.pinned.append(made)
        self.given.gained(AxisUse(gain.name, gain.axes[-1], made, dual=False, offset=gain.offset))
        return Entries(torch.from_numpy(made).expand(self.shape))

    def node_shape(self, parameter: WeightAxes) -> tuple[int, ...]:
        """The shape of the operand that is a parameter."""
        for name in ("self", "other"):
            if self._of(name) == parameter:
                return self._shape_of(name)
        raise NoRequirement

    def _relu(self) -> Entries:
        state = self._entries("self")
        if not state.plain or state.second is not None:
            raise NoRequirement
        channels = ids_of(of_one_token(state.first))
        self.given.alone(channels)
        self.given.kind(channels, "positive")
        self.given.alike(channels, channels)
        return state

    def _applied(self) -> Entries:
        """A function of single entries: new channels that stay in place and follow the old ones in a permutation."""
        state = self._entries("self")
        if state.second is not None or len(self.node.all_input_nodes) > 1:  # such as a bound of each channel
            raise NoRequirement
        self.given.kind(ids_of(state.first.unique()), "still")
        channels = state.first.unique()
        channels = channels[channels >= 0]
        made = self.given.fresh(len(channels))
        self.given.kind(made, "still")
        self.given.alike(ids_of(channels), made)
        self.given.images.update(made.tolist())
        place = torch.searchsorted(channels, state.first.clamp(min=0).contiguous())
        return Entries(torch.where(state.first == NOBODY, NOBODY, torch.from_numpy(made)[place]))
