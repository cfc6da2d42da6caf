"""Requirements of every operation on channels, propagated through a graph of any size on numbers of channels alone.

An operation without a rule leaves what it reads in place, so that a missing rule loses directions and claims none. A claim is
not a proof: every change of basis is certified on the model's own weights before it is used.
"""

import operator
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from addnorm.redundancy.execution.operation_names import LOG_SOFTMAXES, SOFTMAXES, name_of
from addnorm.redundancy.graph.export import Program
from addnorm.redundancy.graph.reshaping import axes_after
from addnorm.symmetry.actions.rules.pointwise import HOMOGENEOUS
from addnorm.symmetry.actions.rules.routing import GROUPED
from addnorm.symmetry.actions.rules.shapes import INDEXING
from addnorm.symmetry.bases.channels import NOBODY, Requirements
from addnorm.symmetry.bases.convolutions import Convolutions
from addnorm.symmetry.bases.graph import PASSING
from addnorm.symmetry.bases.solution import Cells, solved
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

_ELEMENTWISE = frozenset(
    {"silu", "gelu", "sigmoid", "tanh", "exp", "softplus", "elu", "mish", "hardswish", "hardtanh", "erf", "sin", "cos"}
    | {"clamp", "clamp_min", "clamp_max", "log", "pow"}
)

_RIGID = (
    SOFTMAXES
    | LOG_SOFTMAXES
    | {"sigmoid", "sign", "cumsum", "topk", "sort", "argmax", "argmin", "max", "min", "amax", "amin"}
    | {"gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "isfinite"}
)
"""Operations without a rule whose result, for any change of basis of what they read, would be another one."""


def cells(program: Program, stay: Collection[str] = ()) -> Cells:
    """Return the cells of channels of a graph.

    Args:
        program: the exported model; its weights may be on the meta device.
        stay: parameters that are left as they are, as a gain with a zero, which no matrix can give back.
    """
    given = Requirements(frozen=set(stay))
    states: dict[fx.Node, Any] = {}
    for node in program.nodes:
        if node.op == "placeholder":
            own = program.parameters.get(node.name)
            if own is None or own in program.buffers:
                value = node.meta.get("val")
                is_data = own is None and node.name not in program.constants
                is_constant = not is_data or not (isinstance(value, Tensor) and value.is_floating_point())
                states[node] = Data(is_constant, program.constants.get(node.name))
            else:
                states[node] = WeightAxes(own, tuple(range(node.meta["val"].dim())))
            continue
        uses, gains = len(given.uses), len(given.gains)
        try:
            operation = Operation(given, node, states)
            states[node] = made = operation.state()
            if not isinstance(made, WeightAxes):
                followed: set[Any] = operation.unread | {(use.parameter, use.axis) for use in given.uses[uses:]}
                followed |= {(gain.parameter, gain.axis) for gain in given.gains[gains:]}
                given.in_place |= _axes(node, states) - followed
        except NoRequirement:
            for each in node.all_input_nodes:
                stop(given, states[each], is_unruled=name_of(node.target) not in _RIGID)
            # What weights and constants make is a constant while the weights stay, such as angles of learned frequencies.
            read = [states[each] for each in node.all_input_nodes]
            is_constant = all(isinstance(each, WeightAxes) or getattr(each, "constant", False) for each in read)
            states[node] = (
                Data(True) if read and is_constant and isinstance(node.meta.get("val"), Tensor) else still(node)
            )
    for node in program.observed:
        stop(given, states[node])
    return solved(given)


def _axes(node: fx.Node, states: dict[fx.Node, Any]) -> set[tuple[str, int | None]]:
    """All axes of the weights whose numbers an operation reads: of some only the first argument's, and shapes of the others."""
    read = node.all_input_nodes[: 1 if name_of(node.target) in PASSING | INDEXING else None]
    weights = [states[each] for each in read if isinstance(states[each], WeightAxes)]
    return {(each.name, axis) for each in weights for axis in (*each.axes, each.experts)}


class Operation(Convolutions):
    """One operation, with all rules."""

    def state(self) -> Any:
        """Return the state of the result.

        Raises:
            NoRequirement: there is no rule.
        """
        if self.node.target is operator.getitem:
            whole: Any = self.states[self.node.args[0]]  # type: ignore[index]
            at: Any = self.node.args[1]
            return whole[at] if isinstance(whole, tuple) else whole
        if self.name == "full" and not self.named["fill_value"]:
            return Data(True, torch.zeros((), dtype=self.node.meta["val"].dtype).expand(self.shape))
        read = [self.states[each] for each in self.node.all_input_nodes]
        if all(isinstance(each, Data) for each in read):
            made, constant = still(self.node), all(each.constant for each in read)
            if isinstance(made, tuple):
                return tuple(Data(constant) for _ in made)
            return Data(constant, read[0].value if self.name in PASSING else None)
        rules: dict[str, Callable[[], Any]] = {
            "linear": lambda: self._map("input", "weight", "bias"),
            "addmm": lambda: self._map("mat1", "mat2", "self", is_transposed=True),
            "embedding": self._look_up,
            "add": self._sum,
            "sub": self._sum,
            "mul": self._product,
            "div": self._quotient,
            "neg": lambda: replace(self._entries("self"), plain=False),
            "view_as_complex": lambda: self._entries("self"),  # the axis of both parts stays in the state
            "view_as_real": lambda: self._entries("self"),
            **dict.fromkeys(HOMOGENEOUS, self._relu),
            "square": lambda: replace(self._entries("self"), squared=True),
            "mean": self._reduced,
            "sum": self._reduced,
            "linalg_vector_norm": lambda: self._length(self._entries("self"), self.named.get("dim")),
            "rms_norm": lambda: self._norm("rotation"),
            "layer_norm": lambda: self._norm("centred rotation"),
            "scaled_dot_product_attention": self._attention,
            "matmul": self._matmul,
            "bmm": self._matmul,
            "baddbmm": self._matmul,
            "conv1d": self._convolved,
            "conv2d": self._patches,
            **dict.fromkeys(GROUPED, self._mapped_by_expert),
            "mm": self._matmul,
            "cat": self._joined,
            "stack": self._joined,
        }
        if self.name == "pow" and self.named.get("exponent") == 2:
            return replace(self._entries("self"), squared=True)
        if self.name in PASSING:
            return self.states[self.node.args[0]]  # type: ignore[index]
        if self.name in INDEXING:
            return self._indexed()
        if self.name in _ELEMENTWISE:
            return self._applied()
        if self.name not in rules:
            raise NoRequirement
        return rules[self.name]()

    # attention

    def _attention(self) -> Any:
        query, key, value = (self._of(name) for name in ("query", "key", "value"))
        stop(self.given, self._of("attn_mask"))
        try:
            self._contracted(query, key)
        except NoRequirement:
            for each in (query, key):
                stop(self.given, each, is_unruled=isinstance(query, Entries) and isinstance(key, Entries))
        if not isinstance(value, Entries):
            return Data(False)
        return self._averaged(value)

    def _contracted(self, query: Entries, key: Entries) -> None:
        """Queries and keys [..., head, place, d]: dual bases within a key head."""
        if not isinstance(query, Entries) or not isinstance(key, Entries):
            raise NoRequirement
        if query.plain != key.plain or (query.second is None) != (key.second is None):
            raise NoRequirement
        parts = [self._by_head(query.first), self._by_head(key.first)]
        turned: list[Tensor] = []
        if query.second is not None and key.second is not None:
            turned = [self._by_head(query.second), self._by_head(key.second)]
            parts, turned = _untangled(parts, turned)
        heads = max(len(each) for each in parts)
        one, other = (each.repeat_interleave(heads // len(each), 0) for each in parts)
        self.given.equal(ids_of(one), ids_of(other), dual=True)
        self.given.role(ids_of(one), "query")
        self.given.role(ids_of(other), "key")
        for each in (one, other):
            self.given.together(ids_of(each), np.repeat(np.arange(heads), each.shape[1]))
        if turned:
            for own, partner in zip(parts, turned, strict=True):
                rotated = own != partner
                self.given.together(ids_of(own), ids_of(rotated.long()))
                self.given.paired(ids_of(own[rotated]), ids_of(partner[rotated]))
        elif not query.plain:
            self.given.alone(ids_of(one))
            self.given.alone(ids_of(other))

    def _by_head(self, first: Tensor) -> Tensor:
        token = of_one_token(first)
        if token.dim() < 2 or token.shape[-2] > 1 or (token.dim() > 3 and any(size > 1 for size in token.shape[:-3])):
            raise NoRequirement
        return token.reshape(-1, token.shape[-1])

    def _averaged(self, value: Entries) -> Entries:
        if not value.plain or value.second is not None:
            raise NoRequirement
        heads = self._by_head(value.first)
        self.given.role(ids_of(heads), "value")
        self.given.together(ids_of(heads), np.repeat(np.arange(len(heads)), heads.shape[1]))
        if len(heads) == 1:
            return Entries(heads[0].expand(self.shape))
        if len(self.shape) < 4:  # [batch * head, place, d]
            return Entries(heads.unsqueeze(1).expand(self.shape))
        heads = heads.repeat_interleave(self.shape[-3] // len(heads), 0)
        return Entries(heads.unsqueeze(1).expand(self.shape))

    def _matmul(self) -> Any:
        names = {"baddbmm": ("batch1", "batch2"), "bmm": ("self", "mat2"), "mm": ("self", "mat2")}
        one, other = names.get(self.name, ("self", "other"))
        first, second = self._of(one), self._of(other)
        if self.name == "baddbmm":
            stop(self.given, self._of("self"))
        if isinstance(second, WeightAxes):
            return self._map("self", other, "", is_transposed=True)
        if isinstance(first, WeightAxes) and isinstance(second, Entries):
            # A weight times columns of tokens, as Mamba's step sizes.
            return self._mapped_columns(first, second)
        if isinstance(first, Entries) and isinstance(second, Entries):
            turned = None if second.second is None else second.second.transpose(-1, -2)
            self._contracted(first, replace(second, first=second.first.transpose(-1, -2), second=turned))
            return Data(False)
        if isinstance(first, Data) and isinstance(second, Entries) and self.name != "baddbmm":
            return self._averaged(second)
        raise NoRequirement

    # order of entries

    def _indexed(self) -> Any:
        operands = self.node.all_input_nodes
        state = self.states[operands[0]]
        if self.name == "index":
            return self._chosen()
        if len(operands) > 1 and self.name not in ("type_as", "expand_as", "view_as"):
            raise NoRequirement
        if isinstance(state, WeightAxes) and self.name in ("expand", "repeat"):
            return self._vector(state)
        if isinstance(state, WeightAxes):
            return self._turned(state)
        if not isinstance(state, Entries):
            return still(self.node)
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

    def _chosen(self) -> Any:
        """Entries at places along one axis: of tokens, of experts' rows, or of channels where the graph holds the places."""
        state, places = self._of("self"), self.named["indices"]
        along = [axis for axis, each in enumerate(places) if each is not None]
        if len(along) != 1:
            raise NoRequirement
        (axis,) = along
        chosen = places[axis].meta["val"]
        if len(chosen.shape) != 1 or chosen.dtype == torch.bool:
            raise NoRequirement
        if isinstance(state, WeightAxes) and axis == 0 and len(state.axes) == 2:
            return replace(state, axes=state.axes[1:], experts=state.axes[0])
        if not isinstance(state, Entries) or state.squared:
            raise NoRequirement
        at = self.states[places[axis]].value
        if at is None and varies_along(state.first)[axis]:
            raise NoRequirement
        at = torch.zeros(self.shape[axis], dtype=torch.int64) if at is None else at % state.first.shape[axis]
        second = None if state.second is None else state.second.index_select(axis, at)
        return replace(state, first=state.first.index_select(axis, at), second=second)

    def _turned(self, state: WeightAxes) -> Any:
        if self.name in ("t", "mT", "transpose", "permute"):
            order = axes_after(self.node.target, len(state.axes), *self.node.args[1:], **self.node.kwargs)
            return replace(state, axes=tuple(state.axes[at] for at in order))
        if self.name == "slice" and self.named.get("dim", 0) % len(state.axes) < len(state.axes) - 1:
            if self.shape != self._shape_of("self"):  # some rows of a table
                self.given.in_place.add((state.name, state.axes[self.named.get("dim", 0)]))
            return state
        raise NoRequirement

    def _joined(self) -> Any:
        # An empty cache, which a first call joins its keys to, has no entries.
        known = [self.states[each] for each in self.named["tensors"] if isinstance(self.states[each], Entries)]
        parts = [self._part(each, known) for each in self.named["tensors"]]
        if not all(isinstance(each, Entries) and not each.squared for each in parts):
            raise NoRequirement

        def run(tensors: list[Tensor]) -> Tensor:
            made: Tensor = self.node.target(tensors, *self.node.args[1:], **self.node.kwargs)  # type: ignore[operator]
            return made

        parts = [each for each in parts if each.first.numel()]
        parts = self._one_basis_of_tokens(parts)
        first = run([each.first for each in parts])
        is_plain = all(each.plain for each in parts)
        if any(each.second is not None for each in parts):
            # A part of each head is rotated by position; the rest is its own partner.
            return Entries(first, run([each.first if each.second is None else each.second for each in parts]), False)
        return Entries(first, None, is_plain)

    def _part(self, node: fx.Node, known: list[Entries]) -> Any:
        """The state of a part; of data beside channels, channels that stay, as many as differ along the same axes."""
        state, shape = self.states[node], node.meta["val"].shape
        if isinstance(state, Entries):
            return state
        if 0 in shape:
            return Entries(torch.zeros(shape, dtype=torch.int64))
        if not isinstance(state, Data) or not known or self.name != "cat" or len(known[0].first.shape) != len(shape):
            return state
        joined = self.named.get("dim", 0) % len(shape)
        along = [each or axis == joined for axis, each in enumerate(varies_along(known[0].first))]
        sizes = [size if is_own else 1 for size, is_own in zip(shape, along, strict=True)]
        made = self.given.fresh(int(np.prod(sizes)))
        self.given.kind(made, "still")
        self.given.pinned.append(made)
        return Entries(torch.from_numpy(made).reshape(sizes).expand(shape))

    def _one_basis_of_tokens(self, parts: list[Entries]) -> list[Entries]:
        """Require that all tokens of a sequence, [batch, token, channel], agree: one matrix reads a class token and patches."""
        is_sequence = len(self.shape) == 3 and self.named.get("dim", 0) % 3 == 1
        if not is_sequence or any(
            each.second is not None or any(varies_along(each.first)[:-1]) or bool((each.first == NOBODY).any())
            for each in parts
        ):
            return parts
        token = parts[0].first[:1, :1]
        for each in parts[1:]:
            self.given.equal(ids_of(token), ids_of(each.first[:1, :1]))
        return [replace(each, first=token.expand(each.first.shape)) for each in parts]


def _untangled(own: list[Tensor], turned: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Channels of queries and keys and their partners, [head, d], with each channel its own once.

    x cos - y sin and x sin + y cos, one beside the other, both begin with x: the second is y's, of which x is the partner.

    Raises:
        NoRequirement: a channel is nowhere its own, or queries and keys are not turned alike.
    """
    swapped = [torch.zeros_like(each, dtype=torch.bool) for each in own]
    for channels, of in zip(own, swapped, strict=True):
        for row, of_row in zip(channels.tolist(), of, strict=True):
            seen: set[int] = set()
            for place, channel in enumerate(row):
                of_row[place] = channel in seen
                seen.add(channel)
    made = [torch.where(of, there, here) for of, here, there in zip(swapped, own, turned, strict=True)]
    partners = [torch.where(of, here, there) for of, here, there in zip(swapped, own, turned, strict=True)]
    for channels, partner in zip(made, partners, strict=True):
        # Within a head: the part that positions rotate may be one for all heads, as in latent attention.
        is_whole = all(len(head.unique()) == len(head) for head in channels)
        if not is_whole or not bool(torch.isin(partner, channels).all()):
            raise NoRequirement
    if any(bool((of != swapped[0][:1]).any()) for of in swapped):
        raise NoRequirement
    return made, partners
