"""Requirements of every operation on channels, propagated through a graph of any size on numbers of channels alone.

An operation without a rule leaves what it reads in place, so that a missing rule loses directions and claims none. A claim is not
a proof: every change of basis is certified on the model's own weights before it is used.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rules.shapes import INDEXING
from addnorm.symmetry.bases.channels import NOBODY, AxisUse, Cells, Gain, Ids, Requirements


class _Stop(Exception):
    """The operation has no rule for these arguments."""


@dataclass(frozen=True)
class _Entries:
    """A tensor whose entries are numbers of channels."""

    first: Tensor
    """int64[*shape]: the channel; -1 where the entry is zero."""
    second: Tensor | None = None
    """The other channel of a rotation by position."""
    plain: bool = True
    """False where entries of one token have different factors."""
    squared: bool = False


@dataclass(frozen=True)
class _Parameter:
    name: str
    axes: tuple[int, ...]
    """Axis of the parameter at every axis of the tensor."""
    offset: float = 0.0


@dataclass(frozen=True)
class _Data:
    """Numbers that do not move."""

    constant: bool


_State = _Entries | _Parameter | _Data | tuple[Any, ...]
_ELEMENTWISE = frozenset(
    {"silu", "gelu", "sigmoid", "tanh", "exp", "softplus", "elu", "mish", "hardswish", "hardtanh", "clamp", "erf", "sin", "cos"}
    | {"clamp_min", "clamp_max", "log", "pow", "abs"}
)
_COPIES = frozenset({"to", "_to_copy", "type_as", "float", "double", "contiguous", "dropout", "alias", "clone", "detach"})


def cells(program: Program) -> Cells:
    """Return the cells of channels of a graph.

    Args:
        program: the exported model; its weights may be on the meta device.
    """
    given = Requirements()
    states: dict[fx.Node, Any] = {}
    for node in program.nodes:
        if node.op == "placeholder":
            own = program.parameters.get(node.name)
            if own is None or own in program.buffers:
                value = node.meta.get("val")
                is_data = own is None and node.name not in program.constants
                states[node] = _Data(not is_data or not (isinstance(value, Tensor) and value.is_floating_point()))
            else:
                states[node] = _Parameter(own, tuple(range(node.meta["val"].dim())))
            continue
        try:
            states[node] = _Operation(given, node, states).state()
        except _Stop:
            for each in node.all_input_nodes:
                _stop(given, states[each])
            states[node] = _still(node)
    for node in program.observed:
        _stop(given, states[node])
    return given.solve()


def _stop(given: Requirements, state: Any) -> None:
    if isinstance(state, _Entries):
        for each in (state.first, state.second):
            if each is not None:
                given.kind(_ids(each.unique()), "still")
    elif isinstance(state, _Parameter):
        given.frozen.add(state.name)
    elif isinstance(state, tuple):
        for each in state:
            _stop(given, each)


def _still(node: fx.Node) -> Any:
    value = node.meta.get("val")
    return tuple(_Data(False) for _ in value) if isinstance(value, list | tuple) else _Data(False)


def _ids(tensor: Tensor) -> Ids:
    return tensor.reshape(-1).numpy()


def _varies(tensor: Tensor) -> list[bool]:
    """For each axis, whether entries differ along it."""
    return [bool((tensor != tensor.narrow(axis, 0, 1)).any()) for axis in range(tensor.dim())]


def _of_one_token(tensor: Tensor) -> Tensor:
    """The channels without the axes along which they are equal (these get size 1)."""
    for axis, varies in enumerate(_varies(tensor)):
        if not varies:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


class _Operation:
    def __init__(self, given: Requirements, node: fx.Node, states: Mapping[fx.Node, Any]) -> None:
        self.given, self.node, self.states = given, node, states
        self.name = str(node.target).split(".")[1] if "." in str(node.target) else ""
        schema = getattr(node.target, "_schema", None)
        self.named: dict[str, Any] = {}
        if schema is not None:
            self.named = dict(zip((each.name for each in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        value = node.meta.get("val")
        self.shape = tuple(value.shape) if isinstance(value, Tensor) else ()

    def state(self) -> Any:
        """Return the state of the result.

        Raises:
            _Stop: there is no rule.
        """
        if self.node.target is operator.getitem:
            whole: Any = self.states[self.node.args[0]]  # type: ignore[index]
            return whole[self.node.args[1]] if isinstance(whole, tuple) else whole
        read = [self.states[each] for each in self.node.all_input_nodes]
        if all(isinstance(each, _Data) for each in read):
            made = _still(self.node)
            return _Data(all(each.constant for each in read)) if isinstance(made, _Data) else made
        rules: dict[str, Callable[[], Any]] = {
            "linear": lambda: self._map("input", "weight", "bias"),
            "addmm": lambda: self._map("mat1", "mat2", "self", is_transposed=True),
            "embedding": self._look_up,
            "add": self._sum,
            "sub": self._sum,
            "mul": self._product,
            "div": self._quotient,
            "neg": lambda: replace(self._entries("self"), plain=False),
            "relu": self._relu,
            "square": lambda: replace(self._entries("self"), squared=True),
            "mean": self._reduced,
            "sum": self._reduced,
            "linalg_vector_norm": lambda: self._length(self._entries("self"), self.named.get("dim")),
            "rms_norm": lambda: self._norm("rotation"),
            "layer_norm": lambda: self._norm("centred rotation"),
            "scaled_dot_product_attention": self._attention,
            "matmul": self._matmul,
            "bmm": self._matmul,
            "mm": self._matmul,
            "softmax": self._without_result,
            "_softmax": self._without_result,
            "cat": self._joined,
            "stack": self._joined,
        }
        if self.name == "pow" and self.named.get("exponent") == 2:
            return replace(self._entries("self"), squared=True)
        if self.name in _COPIES:
            return self.states[self.node.args[0]]  # type: ignore[index]
        if self.name in INDEXING:
            return self._indexed()
        if self.name in _ELEMENTWISE:
            return self._applied()
        if self.name not in rules:
            raise _Stop
        return rules[self.name]()

    def _of(self, name: str) -> Any:
        given = self.named.get(name)
        return self.states[given] if isinstance(given, fx.Node) else given

    def _entries(self, name: str) -> _Entries:
        state = self._of(name)
        if not isinstance(state, _Entries) or state.squared:
            raise _Stop
        return state

    def _shape_of(self, name: str) -> tuple[int, ...]:
        given = self.named.get(name)
        return tuple(given.meta["val"].shape) if isinstance(given, fx.Node) else ()

    # linear maps

    def _map(self, data: str, weight: str, bias: str, *, is_transposed: bool = False) -> _Entries:
        matrix, shift = self._of(weight), self._of(bias)
        if not isinstance(matrix, _Parameter) or len(matrix.axes) != 2 or matrix.offset:
            raise _Stop
        out, into = (matrix.axes[1], matrix.axes[0]) if is_transposed else matrix.axes
        state = self._of(data)
        if isinstance(state, _Entries):
            if state.squared or state.second is not None:
                raise _Stop
            channels = _of_one_token(state.first)
            if any(size > 1 for size in channels.shape[:-1]):
                raise _Stop  # rows of different channels meet one matrix
            channels = state.first.reshape(-1, state.first.shape[-1])[0]
            if not state.plain:
                self.given.alone(_ids(channels))
            self.given.uses.append(AxisUse(matrix.name, into, _ids(channels).copy(), dual=True))
        elif not isinstance(state, _Data):
            raise _Stop
        made = self.given.fresh(self.shape[-1])
        self.given.uses.append(AxisUse(matrix.name, out, made, dual=False))
        if isinstance(shift, _Parameter):
            self.given.uses.append(AxisUse(shift.name, shift.axes[0], made, dual=False))
        elif isinstance(shift, _Entries):
            raise _Stop
        return _Entries(torch.from_numpy(made).expand(self.shape))

    def _look_up(self) -> _Entries:
        table = self._of("weight")
        if not isinstance(table, _Parameter) or table.offset:
            raise _Stop
        made = self.given.fresh(self.shape[-1])
        self.given.uses.append(AxisUse(table.name, table.axes[1], made, dual=False))
        return _Entries(torch.from_numpy(made).expand(self.shape))

    # sums and products

    def _sum(self) -> Any:
        one, other = self._of("self"), self._of("other")
        if isinstance(other, _Entries) and not isinstance(one, _Entries):
            one, other = other, one
        if isinstance(one, _Parameter) and isinstance(other, int | float) and self.name == "add":
            return replace(one, offset=one.offset + other)
        if not isinstance(one, _Entries) or one.squared:
            raise _Stop
        first = one.first.expand(self.shape)
        if isinstance(other, _Parameter):
            varies = _varies(_of_one_token(first).expand(self.shape))
            axis = len(self.shape) - 1
            at = len(other.axes) - 1
            if not one.plain or other.offset or any(varies[:-1]) or at < 0 or len(other.axes) > len(self.shape):
                raise _Stop
            self.given.uses.append(AxisUse(other.name, other.axes[at], _ids(first.movedim(axis, -1).reshape(-1, self.shape[-1])[0]), dual=False))
            return _Entries(first, one.second, one.plain)
        if not isinstance(other, _Entries) or other.squared:
            raise _Stop
        second = other.first.expand(self.shape)
        if torch.equal(first, second) and one.second is None and other.second is None:
            return _Entries(first, None, one.plain and other.plain)
        a, b = _of_one_token(first), _of_one_token(second)
        if not one.plain and not other.plain and a.shape == b.shape and torch.equal(a.unique(), b.unique()):
            return _Entries(first, second, False)
        if not one.plain or not other.plain or one.second is not None or other.second is not None:
            raise _Stop
        pairs = torch.stack([first.reshape(-1), second.reshape(-1)], 1).unique(dim=0).numpy()
        self.given.equal(pairs[:, 0], pairs[:, 1])
        return _Entries(torch.where(first == NOBODY, second, first))

    def _quotient(self) -> Any:
        if isinstance(self._of("other"), _Entries | _Parameter):
            raise _Stop
        return self._product()

    def _product(self) -> Any:
        one, other = self._of("self"), self._of("other")
        if isinstance(one, _Entries) and self.named.get("self") is self.named.get("other"):
            return replace(one, squared=True)
        names = ["self", "other"]
        if not isinstance(one, _Entries):
            one, other = other, one
            names.reverse()
        if not isinstance(one, _Entries) or one.squared:
            raise _Stop
        first = one.first.expand(self.shape)
        if other is None or isinstance(other, int | float):
            return one
        if isinstance(other, _Parameter):
            return self._gained(one, first, other)
        varies = _varies(first)
        shape = self._shape_of(names[1])
        shape = (1,) * (len(self.shape) - len(shape)) + shape
        differs = any(size > 1 and is_varying for size, is_varying in zip(shape, varies, strict=True))
        if isinstance(other, _Data):
            if not differs:
                return replace(one, first=first, second=None if one.second is None else one.second.expand(self.shape))
            if other.constant:
                return _Entries(first, None if one.second is None else one.second.expand(self.shape), False)
            self.given.alone(_ids(_of_one_token(first)))
            return replace(one, first=first)
        if not isinstance(other, _Entries) or other.squared or one.second is not None or other.second is not None:
            raise _Stop
        second = other.first.expand(self.shape)
        # One factor stays in place: of a gate and a value, the gate's side, which an activation has fixed already.
        kept, still = (first, second) if self._is_image(other) or not self._is_image(one) else (second, first)
        self.given.kind(_ids(still.unique()), "still")
        if any(is_varying for is_varying in _varies(_of_one_token(still))):
            self.given.alone(_ids(_of_one_token(kept)))
            pairs = torch.stack([kept.reshape(-1), still.reshape(-1)], 1).unique(dim=0).numpy()
            if len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1])):
                self.given.alike(pairs[:, 0], pairs[:, 1])
        return _Entries(kept)

    def _is_image(self, state: _Entries) -> bool:
        images = self.given.images
        return bool(images) and int(state.first.max()) in images

    def _gained(self, one: _Entries, first: Tensor, other: _Parameter) -> _Entries:
        if not one.plain or one.second is not None:
            raise _Stop
        token = first.reshape(-1, first.shape[-1])[0]
        if any(size > 1 for size in _of_one_token(first).shape[:-1]) or len(token.unique()) != len(token):
            return self._gained_by_head(first, other)
        shape = tuple(self.node_shape(other))
        if any(size > 1 for size in shape[:-1]) or (shape and shape[-1] not in (1, len(token))):
            raise _Stop
        index = np.arange(len(token)) if shape and shape[-1] > 1 else np.zeros(len(token), np.int64)
        made = self.given.fresh(len(token))
        self.given.gains.append(Gain(other.name, other.offset, index, _ids(token).copy(), made))
        return _Entries(torch.from_numpy(made).expand(self.shape))

    def node_shape(self, parameter: _Parameter) -> tuple[int, ...]:
        """The shape of the operand that is a parameter."""
        for name in ("self", "other"):
            if self._of(name) == parameter:
                return self._shape_of(name)
        raise _Stop

    def _gained_by_head(self, first: Tensor, other: _Parameter) -> _Entries:
        # A gain that all heads share, as a norm of queries has, cannot go into one head's matrix.
        self.given.alone(_ids(_of_one_token(first)))
        self.given.frozen.add(other.name)
        return _Entries(first)

    def _relu(self) -> _Entries:
        state = self._entries("self")
        if not state.plain or state.second is not None:
            raise _Stop
        channels = _ids(_of_one_token(state.first))
        self.given.alone(channels)
        self.given.kind(channels, "positive")
        return state

    def _applied(self) -> _Entries:
        """A function of single entries: new channels that stay in place and follow the old ones in a permutation."""
        state = self._entries("self")
        if state.second is not None:
            raise _Stop
        self.given.kind(_ids(state.first.unique()), "still")
        channels = state.first.unique()
        channels = channels[channels >= 0]
        made = self.given.fresh(len(channels))
        self.given.kind(made, "still")
        self.given.alike(_ids(channels), made)
        self.given.images.update(made.tolist())
        place = torch.searchsorted(channels, state.first.clamp(min=0))
        return _Entries(torch.where(state.first == NOBODY, NOBODY, torch.from_numpy(made)[place]))

    # norms

    def _reduced(self) -> Any:
        state = self._of("self")
        if isinstance(state, _Entries) and state.squared:
            return self._length(replace(state, squared=False), self.named.get("dim"))
        entries = self._entries("self")
        dims = self.named.get("dim")
        axes = [axis % entries.first.dim() for axis in (dims if isinstance(dims, list | tuple) else [dims])]
        if dims is None or any(_varies(entries.first)[axis] for axis in axes):
            raise _Stop
        keep = bool(self.named.get("keepdim", False))
        first = entries.first
        for axis in sorted(axes, reverse=True):
            first = first.narrow(axis, 0, 1) if keep else first.select(axis, 0)
        return _Entries(first, None, entries.plain)

    def _length(self, state: _Entries, dims: Any) -> _Data:
        if dims is None or not state.plain or state.second is not None:
            raise _Stop
        axes = [axis % state.first.dim() for axis in (dims if isinstance(dims, list | tuple) else [dims])]
        self._rotates(state.first, axes, "rotation")
        return _Data(False)

    def _rotates(self, first: Tensor, axes: list[int], kind: Any) -> None:
        rest = [axis for axis in range(first.dim()) if axis not in axes]
        token = _of_one_token(first).permute(*rest, *axes)
        lead = int(np.prod(token.shape[: len(rest)], dtype=np.int64))
        flat = token.reshape(lead, -1)
        self.given.together(_ids(flat), np.repeat(np.arange(lead), flat.shape[1]))
        self.given.kind(_ids(flat), kind)

    def _norm(self, kind: Any) -> _Entries:
        state = self._entries("input")
        if not state.plain or state.second is not None or len(self.named["normalized_shape"]) != 1:
            raise _Stop
        self._rotates(state.first, [state.first.dim() - 1], kind)
        made = state
        for name in ("weight", "bias"):
            parameter = self._of(name)
            if isinstance(parameter, _Parameter):
                token = made.first.reshape(-1, made.first.shape[-1])[0]
                if name == "weight":
                    fresh = self.given.fresh(len(token))
                    self.given.gains.append(Gain(parameter.name, 0.0, np.arange(len(token)), _ids(token).copy(), fresh))
                    made = _Entries(torch.from_numpy(fresh).expand(self.shape))
                else:
                    self.given.uses.append(AxisUse(parameter.name, parameter.axes[0], _ids(token).copy(), dual=False))
        return made

    # attention

    def _attention(self) -> Any:
        query, key, value = (self._of(name) for name in ("query", "key", "value"))
        _stop(self.given, self._of("attn_mask"))
        if not isinstance(query, _Entries) or not isinstance(key, _Entries):
            raise _Stop
        self._contracted(query, key)
        if not isinstance(value, _Entries):
            return _Data(False)
        return self._averaged(value)

    def _contracted(self, query: _Entries, key: _Entries) -> None:
        """Queries and keys [..., head, place, d]: dual bases within a key head."""
        if query.plain != key.plain or (query.second is None) != (key.second is None):
            raise _Stop
        parts = [self._by_head(query.first), self._by_head(key.first)]
        heads = max(len(each) for each in parts)
        one, other = (each.repeat_interleave(heads // len(each), 0) for each in parts)
        self.given.equal(_ids(one), _ids(other), dual=True)
        self.given.role(_ids(one), "query")
        self.given.role(_ids(other), "key")
        for each in (one, other):
            self.given.together(_ids(each), np.repeat(np.arange(heads), each.shape[1]))
        if query.second is not None and key.second is not None:
            for state, mine in ((query, parts[0]), (key, parts[1])):
                assert state.second is not None
                turned = self._by_head(state.second)
                rotated = mine != turned
                self.given.together(_ids(mine), _ids(rotated.long()))
                self.given.paired(_ids(mine[rotated]), _ids(turned[rotated]))
        elif not query.plain:
            self.given.alone(_ids(one))
            self.given.alone(_ids(other))

    def _by_head(self, first: Tensor) -> Tensor:
        token = _of_one_token(first)
        if token.dim() < 2 or token.shape[-2] > 1 or (token.dim() > 3 and any(size > 1 for size in token.shape[:-3])):
            raise _Stop
        return token.reshape(-1, token.shape[-1])

    def _averaged(self, value: _Entries) -> _Entries:
        if not value.plain or value.second is not None:
            raise _Stop
        heads = self._by_head(value.first)
        self.given.role(_ids(heads), "value")
        self.given.together(_ids(heads), np.repeat(np.arange(len(heads)), heads.shape[1]))
        if len(self.shape) < 4:
            return _Entries(heads[0].expand(self.shape))
        heads = heads.repeat_interleave(self.shape[-3] // len(heads), 0)
        return _Entries(heads.unsqueeze(1).expand(self.shape))

    def _matmul(self) -> Any:
        other = "mat2" if self.name in ("bmm", "mm") else "other"
        first, second = self._of("self"), self._of(other)
        if isinstance(second, _Parameter):
            return self._map("self", other, "", is_transposed=True)
        if isinstance(first, _Entries) and isinstance(second, _Entries):
            turned = None if second.second is None else second.second.transpose(-1, -2)
            self._contracted(first, replace(second, first=second.first.transpose(-1, -2), second=turned))
            return _Data(False)
        if isinstance(first, _Data) and isinstance(second, _Entries):
            return self._averaged(second)
        raise _Stop

    def _without_result(self) -> Any:
        raise _Stop

    # order of entries

    def _indexed(self) -> Any:
        operands = self.node.all_input_nodes
        state = self.states[operands[0]]
        if len(operands) > 1 and self.name not in ("type_as", "expand_as", "view_as"):
            raise _Stop
        if isinstance(state, _Parameter):
            return self._turned(state)
        if not isinstance(state, _Entries):
            return _still(self.node)
        arguments = list(self.node.args[1:])

        def run(tensor: Tensor) -> Any:
            if self.name in ("view", "reshape", "_unsafe_view"):
                return tensor.reshape(self.shape)
            return self.node.target(tensor + 1, *arguments, **self.node.kwargs)  # type: ignore[operator]

        shift = 0 if self.name in ("view", "reshape", "_unsafe_view") else 1
        first = run(state.first)
        second = None if state.second is None else run(state.second)
        if isinstance(first, Tensor):
            return replace(state, first=first - shift, second=None if second is None else second - shift)
        return tuple(
            replace(state, first=each - shift, second=None if second is None else second[at] - shift)
            for at, each in enumerate(first)
        )

    def _turned(self, state: _Parameter) -> Any:
        if self.name in ("t", "mT", "transpose", "permute"):
            order = torch.empty(tuple(range(2, 2 + len(state.axes))), device="meta")
            moved = self.node.target(order, *self.node.args[1:], **self.node.kwargs)  # type: ignore[operator]
            return replace(state, axes=tuple(state.axes[size - 2] for size in moved.shape))
        raise _Stop

    def _joined(self) -> Any:
        parts = [self.states[each] for each in self.named["tensors"]]
        if not all(isinstance(each, _Entries) and not each.squared for each in parts):
            raise _Stop

        def run(tensors: list[Tensor]) -> Tensor:
            made: Tensor = self.node.target(tensors, *self.node.args[1:], **self.node.kwargs)  # type: ignore[operator]
            return made

        first = run([each.first for each in parts])
        is_plain = all(each.plain for each in parts)
        if any(each.second is not None for each in parts):
            # A part of each head is rotated by position; the rest is its own partner.
            return _Entries(first, run([each.first if each.second is None else each.second for each in parts]), False)
        return _Entries(first, None, is_plain)
