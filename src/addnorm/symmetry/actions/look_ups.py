"""Rows of tables that the inputs only ever read together, such as that of padding and that of its position.

A sum of look-ups at every datum is J Θ: a known matrix J of zeros and ones, one column for each row that is read, times all
rows Θ. Any n with J n = 0 moves the rows by n u^T, for every u, without an effect. That one table gains a constant which
another loses is the best known of these, and follows from the shifts of both look-ups. Others are there where the inputs'
pairs of rows fall into parts which share no row: each part may trade a constant of its own.

Where a norm alone reads the sum, a datum's length has no effect, but for eps. Most data cannot change it alone, since others
read the same rows. A datum can that has a row of its own, as all have where tokens are the only table of many rows.

What is read together is known from drawn inputs alone: a row that few of them read is taken to be read with all others.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from torch import Tensor, fx

from addnorm.redundancy.execution.fresh_inputs import InputTemplate
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.equations import Ids, Numbers, null_basis, sparse_basis
from addnorm.symmetry.actions.rules.shapes import REORDERING

_SPLITTING = {"unbind", "split", "split_with_sizes", "tensor_split", "chunk", "hsplit"}
_KEEPING_VECTORS = REORDERING - _SPLITTING - {"cat"}
"""Operations that may leave every vector what it is."""
_NORMS = frozenset({"layer_norm", "native_layer_norm", "rms_norm"})
ENOUGH = 8
"""Number of reads from which a row's company is known: that of chance would be in another part once in a while."""
_FEWEST_INPUTS, _MOST_INPUTS = 4, 64
_MOST_ROWS = 2000
"""Rows of one sum, read often, for which J is written down."""

Given = Callable[[fx.Node], Tensor]
"""The numbers of a placeholder."""
Computed = Callable[[fx.Node, Mapping[fx.Node, Any]], Any]
"""The numbers of a call, from those of its arguments."""


@dataclass(frozen=True)
class OwnRow:
    """A row that one datum alone reads, of those that a norm alone reads."""

    look_up: fx.Node
    row: int
    datum: Mapping[fx.Node, int]
    """The row of every look-up in the sum."""


@dataclass(frozen=True)
class RowsTogether:
    """The moves that sums of look-ups leave free, beside constants of whole tables and the scale of all."""

    traded: tuple[tuple[Mapping[fx.Node, Numbers], ...], ...] = ()
    """Of every sum, for each n with J n = 0, a number per row of the look-ups' tables."""
    own: tuple[OwnRow, ...] = ()


@dataclass
class _Sum:
    """All data of one sum of look-ups."""

    end: fx.Node
    """The node that reads the last of them and nothing else does."""
    terms: int
    rows: dict[fx.Node, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def data(self) -> "_Data":
        """All different data."""
        rows, counts = torch.stack([torch.cat(each) for each in self.rows.values()], 1).unique(
            dim=0, return_counts=True
        )
        return _Data(list(self.rows), rows.numpy(), counts.numpy())


@dataclass(frozen=True)
class _Data:
    """Rows that look-ups read together."""

    look_ups: list[fx.Node]
    rows: Ids
    """int[datum, look-up]."""
    counts: Ids

    def reads(self) -> Ids:
        """Count how often each datum's rows were read, by this or another datum, [datum, look-up]."""
        made = [np.bincount(own, self.counts)[own] for own in self.rows.T]
        return np.stack(made, 1).astype(np.int64)


def inputs_by_rows(template: InputTemplate) -> list[Inputs]:
    """Draw so many inputs that each row is read often enough for its company to be known.

    Of very many rows this is known of those in the example alone, in other orders.
    """
    wanted = -(-ENOUGH * template.most_rows // template.step) if template.step else 0
    if wanted > _MOST_INPUTS:
        own = [template.fresh(seed, None) for seed in range(_MOST_INPUTS // 2)]
        return own + [template.fresh(seed, seed * template.step) for seed in range(1, 1 + _MOST_INPUTS // 2)]
    return [template.fresh(seed, seed * template.step) for seed in range(1, 1 + max(wanted, _FEWEST_INPUTS))]


def rows_together(program: Program, given: Sequence[Given], computed: Computed) -> RowsTogether:
    """Return what the rows that are only read together may do.

    Args:
        program: the exported model.
        given: the numbers of a placeholder, for each of some inputs; of one input alone most rows are read together.
        computed: the numbers of a call.
    """
    sums: dict[fx.Node, _Sum] = {}
    for each in given:
        read = _places(program, each, computed)
        if any(int(places.max()) >= size_of(look_up, 0) for look_up, places in read.items()):
            continue  # an input that the model would reject
        for look_up, places in read.items():
            end, terms, rows = _followed(program, look_up, places, computed)
            sums.setdefault(end, _Sum(end, terms)).rows[look_up].append(rows.reshape(-1))
    data = [each.data() for each in sums.values()]
    own = [
        _own_rows(rows)
        for one, rows in zip(sums.values(), data, strict=True)
        if one.terms == len(one.rows) and _is_normed(program, one.end)
    ]
    return RowsTogether(tuple(tuple(_traded(each)) for each in data), tuple(row for each in own for row in each))


def _places(program: Program, given: Given, computed: Computed) -> dict[fx.Node, Tensor]:
    """The row that every look-up reads at every place."""
    look_ups = [node for node in program.nodes if name_of(node.target) == "embedding"]
    needed, numbers = set[fx.Node](), dict[fx.Node, Any]()
    waiting = [each.args[1] for each in look_ups]
    while waiting:
        node = waiting.pop()
        if isinstance(node, fx.Node) and node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    for node in program.nodes:
        if node in needed:
            numbers[node] = given(node) if node.op == "placeholder" else computed(node, numbers)
    return {each: numbers[each.args[1]] for each in look_ups}  # type: ignore[index]


def _followed(program: Program, look_up: fx.Node, places: Tensor, computed: Computed) -> tuple[fx.Node, int, Tensor]:
    """The last sum that alone reads the look-up, or itself, the terms of that sum, and the row which each of its data reads."""
    node = end = look_up
    rows = made = places.double()[..., None].expand(*places.shape, size_of(look_up, 1))
    while (user := _only_reader(program, node)) is not None:
        if name_of(user.target) == "add" and len(user.all_input_nodes) == 2 and not user.kwargs:
            end, rows = user, made.expand(user.meta["val"].shape)
            made = rows
        elif name_of(user.target) in _KEEPING_VECTORS and user.all_input_nodes == [node]:
            made = computed(user, {node: made})
            if made.shape[-1] != size_of(look_up, 1) or not bool((made == made[..., :1]).all()):
                break
        else:
            break
        node = user
    return end, _terms(program, end), rows[..., 0].long()


def _only_reader(program: Program, node: fx.Node) -> fx.Node | None:
    user = next(iter(node.users)) if len(node.users) == 1 and node not in program.observed else None
    return user if user in program.nodes else None


def _terms(program: Program, node: fx.Node) -> int:
    """The number of summands that a sum has, each itself none."""
    name, read = name_of(node.target), node.all_input_nodes
    if name == "add" and len(read) == 2 and not node.kwargs:
        return sum(_terms(program, each) for each in read)
    return _terms(program, read[0]) if name in _KEEPING_VECTORS and len(read) == 1 else 1


def _is_normed(program: Program, node: fx.Node) -> bool:
    """True if a norm of the whole vectors reads a value, and nothing else does."""
    while (user := _only_reader(program, node)) is not None:
        if name_of(user.target) in _NORMS:
            return user.args[0] is node and list(user.args[1]) == list(node.meta["val"].shape[-1:])  # type: ignore[arg-type]
        if name_of(user.target) not in _KEEPING_VECTORS:
            return False
        node = user
    return False


def _traded(data: _Data) -> list[dict[fx.Node, Numbers]]:
    """All n with J n = 0, sparse, without the constants of whole tables."""
    varied = (data.rows != data.rows[:1]).any(0)
    look_ups = [each for each, is_varied in zip(data.look_ups, varied, strict=True) if is_varied]
    tables = [np.unique(each, return_inverse=True) for each in data.rows.T[varied]]
    starts = np.cumsum([0, *(len(rows) for rows, _ in tables)])
    is_known = data.reads()[:, varied] >= ENOUGH
    known = is_known.all(1)
    if len(tables) < 2 or not known.any():
        return []
    at = starts[:-1] + np.stack([places for _, places in tables], 1)
    label = connected_components(_indicator(at).T @ _indicator(at), directed=False)[1][at[:, 0]]
    # A datum of the largest part. What few inputs read may be read with its rows, and so moves as they do.
    first = at[known & (label == np.bincount(label[known], data.counts[known]).argmax())][0]
    columns, at = np.unique(np.where(is_known, at, first), return_inverse=True)
    if len(columns) > _MOST_ROWS:
        return []
    indicator = _indicator(np.unique(at.reshape(is_known.shape), axis=0)).toarray()
    # Without the constants: all tables but the first keep their row of that datum.
    kept = np.flatnonzero(~np.isin(columns, first[1:]))
    if np.linalg.matrix_rank(indicator) == len(kept):
        return []
    made = []
    for direction in sparse_basis(null_basis(indicator[:, kept])).T:
        whole, own = np.zeros(starts[-1]), {}
        whole[columns[kept]] = direction
        for node, (rows, _), start, end in zip(look_ups, tables, starts[:-1], starts[1:], strict=True):
            if whole[start:end].any():
                own[node] = np.zeros(size_of(node, 0))
                own[node][rows] = whole[start:end]
        made.append(own)
    return made


def _indicator(at: Ids) -> sparse.csr_matrix:
    """J, from the columns at which each row has its ones."""
    count, terms = at.shape
    return sparse.csr_matrix((np.ones(count * terms), (np.repeat(np.arange(count), terms), at.reshape(-1))))


def _own_rows(data: _Data) -> list[OwnRow]:
    """A row of its own for every datum that has one; where all have, the scale of all is left out."""
    is_own = (data.reads() == data.counts[:, None]) & (data.counts[:, None] >= ENOUGH)
    made = [
        OwnRow(
            data.look_ups[own.argmax()], int(rows[own.argmax()]), dict(zip(data.look_ups, rows.tolist(), strict=True))
        )
        for own, rows in zip(is_own, data.rows, strict=True)
        if own.any()
    ]
    return made[1:] if len(made) == len(data.rows) else made


def size_of(look_up: fx.Node, axis: int) -> int:
    """The rows (0) or columns (1) of a look-up's table."""
    table: Any = look_up.args[0]
    return int(table.meta["val"].shape[axis])
