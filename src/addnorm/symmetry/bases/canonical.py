"""The canonical representative: gains are one, every group element is fixed by the weights themselves.

    matrix     both sides of a cell get one diagonal Gram matrix, D = T A Tᵀ = T^-T B T^-1, in falling order
    complex    both sides get one length (a turn of two channels, which a norm reads, has none to give)
    scale      both sides get one length
    rotation   the Gram matrix of all that reads and writes the stream becomes diagonal, in falling order
    signs      the longest entry of every coordinate becomes positive (complex: real), first those that tables fix
    units      ordered by their lengths, those of each expert by themselves

Lengths do not depend on rotations, and Gram matrices not on the bases on the other side, so that the order of the steps does
not matter; cells with nothing between them (two linear maps in a row) are swept until nothing changes. Two copies that differ
by any of these groups have the same representative, up to rounding, if the Gram matrices have different eigenvalues.
"""

from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

from addnorm.symmetry.bases.change import CellPlace, Weights, centred_plane, fold_gains, places, rescale, transform
from addnorm.symmetry.bases.solution import Cell, Cells

_SWEEPS = 300
_STILL = 1e-13


def settle(cells: Cells, made: Weights) -> None:
    """Change weights into their canonical representative, in place: a second copy of all in float64 may not fit."""
    fold_gains(cells, made)
    held = {at: given for at, given in places(cells).items() if given}
    turned = [at for at, cell in enumerate(cells.cells) if cell.kind in ("rotation", "centred rotation")]
    # Only what shares a weight with a cell that has moved is looked at again: most cells are settled at once.
    sharing: dict[str, set[int]] = {}
    for at, given in held.items():
        for each in given:
            sharing.setdefault(each.parameter, set()).add(at)
    waiting = held.keys() - set(turned)
    for _ in range(_SWEEPS):
        changed = {at for at in sorted(waiting) if _settle(cells.cells[at], held[at], made) >= _STILL}
        waiting = {near for at in changed for each in held[at] for near in sharing[each.parameter]} - set(turned)
        if not changed:
            break
    scaled_twice = {use.parameter for use in cells.given.uses if use.is_further}
    for at, signs in _from_fixed_axes(held, scaled_twice, made):
        if at in turned:
            _upright(cells.cells[at], held[at], made, signs=signs)
        else:
            _point(cells.cells[at], held[at], signs, made)
    for columns, order in unit_orders(cells, made):
        for each in columns:
            each.put(made, each.rows(made)[order])


def _rows(given: Sequence[CellPlace], weights: Weights, *, dual: bool) -> Tensor:
    """All entries along one side of a cell, [coordinate, entry]."""
    parts = [each.rows(weights).reshape(len(each.index), -1) for each in given if each.dual == dual]
    return torch.cat(parts, 1) if parts else torch.zeros(len(given[0].index), 0, dtype=torch.float64)


def _both_sides(given: Sequence[CellPlace], weights: Weights) -> Tensor:
    return torch.cat([_rows(given, weights, dual=is_dual) for is_dual in (False, True)], 1)


def _settle(cell: Cell, given: list[CellPlace], weights: Weights) -> float:
    """Fix the element of a cell up to signs and angles; return how far it was from the identity."""
    one, other = _rows(given, weights, dual=False), _rows(given, weights, dual=True)
    if cell.kind == "turn" or not float(one.norm()) or not float(other.norm()):
        return 0.0
    if cell.kind == "matrix":
        matrix = _balanced(one, other)
        if matrix is None:
            return 0.0
        transform(weights, given, matrix)
        return float((matrix.abs() - torch.eye(len(matrix), dtype=torch.float64)).abs().max())
    exponents = [each.exponent for each in given]
    longest, shortest = max(exponents), min(exponents)
    grows, shrinks = (
        torch.cat([p.rows(weights).flatten() for p in given if p.exponent == e]) for e in (longest, shortest)
    )
    factor = float(shrinks.norm() / grows.norm()) ** (1 / (longest - shortest))
    rescale(weights, given, factor)
    return abs(factor - 1)


def _point(cell: Cell, given: list[CellPlace], signs: list[CellPlace], weights: Weights) -> None:
    """Fix the signs and angles of a cell by some of its places; a sign or an angle is the same on both sides of a cell."""
    one = _both_sides(signs, weights)
    if not one.numel() or cell.kind == "positive":
        return
    if cell.kind in ("complex", "turn"):
        at = int(one.norm(dim=0).argmax())
        a, b = (one[:, at] / one[:, at].norm()).tolist()
        transform(weights, given, torch.tensor([[a, b], [-b, a]], dtype=torch.float64))
        return
    transform(weights, given, _signed(torch.eye(cell.size, dtype=torch.float64), one))


def _balanced(one: Tensor, other: Tensor) -> Tensor | None:
    """T with T A Tᵀ = T^-T B T^-1 diagonal; None if a side does not span the cell."""
    factor, info = torch.linalg.cholesky_ex(one @ one.T)
    if int(info):
        return None
    values, vectors = torch.linalg.eigh(factor.T @ (other @ other.T) @ factor)
    values, vectors = values.flip(0), vectors.flip(1)
    if float(values[-1]) <= 1e-12 * float(values[0]):
        return None
    matrix: Tensor = values.pow(0.25)[:, None] * vectors.T @ torch.linalg.inv(factor)
    return matrix


def _signed(matrix: Tensor, rows: Tensor) -> Tensor:
    """The matrix with the signs for which every coordinate's longest entry is positive."""
    after = matrix @ rows
    longest = after.gather(1, after.abs().argmax(1, keepdim=True))
    return torch.where(longest < 0, -matrix, matrix)


def _from_fixed_axes(
    held: Mapping[int, list[CellPlace]], scaled_twice: Set[str], weights: Weights
) -> Iterator[tuple[int, list[CellPlace]]]:
    """Every cell, in an order in which signs can be read: with its places in weights whose other axes are fixed by then.

    The signs of a latent are read off the map from the stream, whose own are read off a table; off the map to heads, whose
    signs are as open, every copy would read other ones. A bias of zero has no sign to read.
    """
    along: dict[tuple[str, int], set[int]] = {}
    for at, given in held.items():
        for each in given:
            along.setdefault((each.parameter, each.axis), set()).add(at)
    axes: dict[str, set[int]] = {}
    for name, axis in along:
        axes.setdefault(name, set()).add(axis)

    # Rows that two scales multiply, as those of a factor whose other factor may be scaled, have a sign of both.
    by_row: dict[tuple[object, ...], set[int]] = {}
    for at, given in held.items():
        for each in given:
            for row in each.index.tolist() if each.parameter in scaled_twice else ():
                by_row.setdefault((each.parameter, each.axis, row), set()).add(at)
    twice = {key: each for key, each in by_row.items() if len(each) > 1}

    def is_fixed(at: int, place: CellPlace) -> bool:
        others = [along[place.parameter, axis] for axis in axes[place.parameter] - {place.axis}]
        rows = ((place.parameter, place.axis, row) for row in place.index.tolist()) if twice else ()
        others += [twice[each] - {at} for each in rows if each in twice]
        return not any(each & left.keys() for each in others)

    left = dict(held)
    while left:
        ready = {at: [each for each in given if is_fixed(at, each)] for at, given in left.items()}
        ready = {at: given for at, given in ready.items() if given and _tells_signs(given, left[at], weights)}
        for at, given in (ready or {at: left[at] for at in [next(iter(left))]}).items():
            yield at, given
            del left[at]


def _tells_signs(some: list[CellPlace], given: list[CellPlace], weights: Weights) -> bool:
    """True if no coordinate is nearly zero in some of a cell's places."""

    def squares(each: CellPlace) -> Tensor:
        return each.rows(weights).reshape(len(each.index), -1).square().sum(1)

    read = torch.stack([squares(each) for each in some]).sum(0)
    return float(read.min()) > 1e-12 * max(float(squares(each).max()) for each in given)


def _upright(cell: Cell, given: list[CellPlace], weights: Weights, *, signs: list[CellPlace]) -> None:
    """Make the Gram matrix of all that reads and writes a stream diagonal; some of these places fix the signs."""
    size = cell.size
    plane = centred_plane(size) if cell.kind == "centred rotation" else torch.eye(size, dtype=torch.float64)
    # Place by place: nearly every weight of a model reads or writes its stream, and copies of all at once would decide the
    # memory that the whole analysis takes.
    gram = torch.zeros(size, size, dtype=torch.float64)
    for each in given:
        rows = _rows([each], weights, dual=each.dual)
        gram += rows @ rows.T
    _, vectors = torch.linalg.eigh(plane.T @ gram @ plane)
    turn = _signed(vectors.flip(1).T @ plane.T, _both_sides(signs, weights)) @ plane
    matrix = plane @ turn @ plane.T
    if cell.kind == "centred rotation":
        matrix = matrix + 1 / size
    for each in given:
        each.put(weights, torch.tensordot(matrix, each.rows(weights), 1))


def unit_orders(cells: Cells, weights: Weights) -> list[tuple[list[CellPlace], Tensor]]:
    """For every hidden layer, of experts each, the axes that hold its units, and the order of falling lengths.

    A unit is a set of channels that follow each other through an activation or a product, with one entry on every axis.
    """
    given = cells.given
    links = [(one, other) for one, other in given.likenesses]
    if not links:
        return []
    number = int(cells.component.max()) + 1
    rows = np.concatenate([cells.component[one[(one >= 0) & (other >= 0)]] for one, other in links])
    others = np.concatenate([cells.component[other[(one >= 0) & (other >= 0)]] for one, other in links])
    graph = sparse.csr_matrix((np.ones(len(rows), bool), (rows, others)), shape=(number, number))
    _, unit = csgraph.connected_components(graph, directed=False)
    linked = np.zeros(number, bool)
    linked[rows] = linked[others] = True
    # Outputs have an order, and so have the parts of heads.
    for each in given.pinned:
        linked[np.isin(unit, unit[cells.component[each[each >= 0]]])] = False
    for cell in cells.cells:
        if cell.roles:
            linked[np.isin(unit, unit[cell.components])] = False
    signature: dict[int, list[tuple[int, int]]] = {}
    for at, use in enumerate(given.uses):
        component = np.where(use.channels >= 0, cells.component[use.channels], -1)
        for place in np.flatnonzero((component >= 0) & linked[np.maximum(component, 0)]).tolist():
            signature.setdefault(int(unit[component[place]]), []).append((at, place))
    layers: dict[tuple[int, ...], list[list[tuple[int, int]]]] = {}
    for held in signature.values():
        layers.setdefault(tuple(at for at, _ in held), []).append(held)
    made = []
    for units in layers.values():
        uses = [given.uses[at] for at, _ in units[0]]
        indices = [torch.tensor([each[column][1] for each in units]) for column in range(len(uses))]
        # Of experts in one weight each has an order of its own.
        by_expert = [use.experts for use in uses if use.experts is not None]
        count = weights[uses[0].parameter].shape[by_expert[0]] if len(by_expert) == len(uses) else 1
        for expert in range(count if len(units) > 1 else 0):
            # An axis of a fused gate and up projection holds two places of every unit: one column each. A weight that layers
            # share, or whose rows have two scales, has several uses of one place, and is ordered once.
            columns: dict[tuple[str, int, int], CellPlace] = {}
            for use, index in zip(uses, indices, strict=True):
                own = (use.experts, expert) if use.experts is not None and len(by_expert) == len(uses) else None
                columns[use.parameter, use.axis, int(index[0])] = CellPlace(
                    use.parameter, use.axis, index, False, expert=own
                )
            lengths = sum(each.rows(weights).reshape(len(units), -1).square().sum(1) for each in columns.values())
            made.append((list(columns.values()), torch.argsort(torch.as_tensor(lengths), descending=True, stable=True)))
    return made
