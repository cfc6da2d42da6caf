r"""Solving demands one by one: each takes away free coordinates, and everything else is re-expressed in what is left.

A demand says that a shift vanishes, or is the same all along some axes: linear equations between the free coordinates.

1. A coordinate that occurs in one equation only (through the identity: a bias just added) is solved for, equation by
equation: no
   arithmetic but the substitution, no decision about ranks. "Constant along an axis" brings its constant along as a
   new free coordinate. This covers nearly everything that networks do, and keeps the rest sparse.
2. What remains falls into independent sets of equations (per head, per channel); each goes to the one null-space
routine.

Solved coordinates leave through `rewrite`; shifts that still name them are brought up to date when they are next read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import hypot, inf, prod

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from addnorm.redundancy.algebra.linear_map import LinearMap, dense, identity
from addnorm.redundancy.algebra.rank import conditioned, kernel_and_clarity, rank
from addnorm.redundancy.graph.shift import EPS, Dense, Diagonal, Shift, Term, TooLarge, without_rounding

Note = Callable[[int, int], None]
"""Called with a block and the degrees of freedom that a demand takes from it."""

_PIVOT = 1e-3
"""Smallest pivot relative to its equation's largest coefficient: smaller ones would enlarge rounding."""
_EVEN = 1e4
"""Largest condition of a block that is solved for as a whole."""
_CHUNK = 2**25
"""Numbers of equations held at once."""


class Elimination:
    """The free coordinates, and how the solved ones depend on them."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.owner: dict[int, str] = {}
        self.rewrite: dict[int, dict[int, LinearMap]] = {}

    def block(self, size: int, owner: str) -> int:
        """New free coordinates."""
        name = len(self.sizes)
        self.sizes[name], self.owner[name] = size, owner
        return name

    def express(self, block: int) -> dict[int, LinearMap]:
        """A block's coordinates from those that are free now."""
        if block not in self.rewrite:
            return {block: identity(self.sizes[block])}
        total: dict[int, LinearMap] = {}
        for inner, outer in self.rewrite[block].items():
            for free, step in self.express(inner).items():
                path = outer.after(step)
                total[free] = total[free].plus(path) if free in total else path
        self.rewrite[block] = total
        return total

    def current(self, shift: Shift) -> Shift:
        """The shift in terms of what is free now, without what is rounding only."""
        if not any(block in self.rewrite for block in shift.terms):
            return shift
        terms: dict[int, Term] = {}
        for block, term in shift.terms.items():
            if block not in self.rewrite:
                _accumulate(terms, block, term)
                continue
            for free, path in self.express(block).items():
                _accumulate(terms, free, _substituted(term, path))
        return without_rounding(Shift(shift.shape, terms))

    def demand(self, shift: Shift, axes: Sequence[int] | None, note: Note) -> None:
        """Solve "the shift vanishes" (axes None) or "the shift is constant along these axes together"."""
        shift = without_rounding(self.current(shift))
        try:
            self._impose(shift, axes, note)
        except TooLarge:
            # Forbidding these coordinates to move at all implies the demand.
            for block in shift.terms:
                if block not in self.rewrite:
                    note(block, self.sizes[block])
                    self.rewrite[block] = {}

    def _impose(self, shift: Shift, axes: Sequence[int] | None, note: Note) -> None:
        terms = {
            block: term
            for block, term in shift.terms.items()
            if axes is None or any(term.reduced[axis] > 1 for axis in axes)
        }
        if not terms or self._diagonal(terms, axes, note):
            return
        if len(terms) == 1 and axes is None and next(iter(terms.values())).regular:
            (only,) = terms
            note(only, self.sizes[only])
            self.rewrite[only] = {}
            return
        reduced = tuple(torch.broadcast_shapes(*(term.reduced for term in terms.values())))
        columns = sum(self.sizes[block] for block in terms)
        together = [axis for axis in axes if reduced[axis] > 1] if axes is not None else []
        matrices = {block: _equations(term, reduced, together) for block, term in terms.items()}
        group = prod(reduced[axis] for axis in together)
        if together:
            matrices = {block: _levelled(matrix, group, terms[block].noise) for block, matrix in matrices.items()}
        for block, matrix in matrices.items():
            note(block, rank(_differences(matrix, group).numpy() if together else matrix.numpy()))
        rows = prod(reduced)
        if rows * columns > _CHUNK:
            whole = torch.cat(list(matrices.values()), dim=1)
            self._solve(_compressed(_differences(whole, group) if together else whole), list(matrices))
            return
        left = self._singletons(matrices, rows, group if together else None, terms)
        if left is None or (not together and len(left[0]) == rows and self._square(matrices, terms)):
            return
        self._solve(*left)

    def _diagonal(self, terms: Mapping[int, Term], axes: Sequence[int] | None, note: Note) -> bool:
        """The commonest demand, solved without spelling the diagonal out: one block is a diagonal along the only
        axis.
        """
        for block, pivot in terms.items():
            if not isinstance(pivot, Diagonal) or (axes is not None and pivot.axis not in axes):
                continue
            others = {other: term for other, term in terms.items() if other != block}
            if any(
                size > 1 and at != pivot.axis for term in others.values() for at, size in enumerate(term.reduced)
            ) or float(pivot.scale.abs().min()) < _PIVOT * float(pivot.scale.abs().max()):
                continue
            size = len(pivot.scale)
            solved: dict[int, LinearMap] = {}
            for other, term in others.items():
                matrix = _equations(term, pivot.reduced, [])
                note(other, rank(matrix.numpy()) if axes is None else rank(_differences(matrix, size).numpy()))
                solved[other] = dense(
                    size, -matrix / pivot.scale[:, None], regular=term.regular, condition=term.condition
                )
            note(block, size if axes is None else size - 1)
            if axes is not None:
                free = self.block(1, self.owner[block])
                solved[free] = dense(size, (1 / pivot.scale)[:, None])
            self.rewrite[block] = solved
            return True
        return False

    def _square(self, matrices: Mapping[int, torch.Tensor], terms: Mapping[int, Term]) -> bool:
        """Solve "the shift vanishes" for one block whose own matrix is square, regular and well conditioned, the last
        such: it takes no rank, and keeps what is known of the others."""
        for block in reversed(list(matrices)):
            matrix = matrices[block]
            square = terms[block].regular and matrix.shape[0] == matrix.shape[1]
            if not square or conditioned(matrix.numpy())[1] > _EVEN:
                continue
            self.rewrite[block] = {
                other: dense(
                    len(matrix),
                    -torch.linalg.solve(matrix, given),
                    regular=terms[other].regular,
                    condition=terms[other].condition * terms[block].condition,
                )
                for other, given in matrices.items()
                if other != block
            }
            return True
        return False

    def _singletons(
        self, matrices: dict[int, torch.Tensor], rows: int, group: int | None, terms: Mapping[int, Term]
    ) -> tuple[torch.Tensor, list[int]] | None:
        """Solve equations by coordinates that occur in no other; what remains, as (matrix, its blocks)."""
        open_rows = torch.ones(rows, dtype=torch.bool)
        largest = torch.stack([matrix.abs().amax(dim=1) for matrix in matrices.values()]).amax(dim=0)
        chosen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for block, matrix in matrices.items():
            alone = torch.nonzero(matrix.ne(0).sum(dim=0) == 1).flatten()
            if not len(alone):
                continue
            at = matrix[:, alone].abs().argmax(dim=0)
            sizes = matrix[at, alone].abs()
            good = open_rows[at] & (sizes >= _PIVOT * largest[at])
            alone, at, sizes = alone[good], at[good], sizes[good]
            order = torch.argsort(sizes, stable=True)
            best = torch.full((rows,), -1)
            best[at[order]] = alone[order]  # the largest is written last
            taken = torch.nonzero(best >= 0).flatten()
            if len(taken):
                open_rows[taken] = False
                chosen[block] = (taken, best[taken])
        constant = None
        if group is not None and chosen:
            constant = self.block(rows // group, self.owner[next(iter(chosen))])
            ones = torch.zeros(rows, rows // group, dtype=torch.float64)
            ones[torch.arange(rows), torch.arange(rows) // group] = -1.0
            matrices = matrices | {constant: ones}
        rest: dict[int, tuple[int, torch.Tensor]] = {}
        for block, (_, columns) in chosen.items():
            keep = torch.ones(self.sizes[block], dtype=torch.bool)
            keep[columns] = False
            stay = torch.nonzero(keep).flatten()
            rest[block] = (self.block(len(stay), self.owner[block]) if len(stay) else -1, stay)
        narrowed = {
            rest[block][0] if block in rest else block: matrix[:, rest[block][1]] if block in rest else matrix
            for block, matrix in matrices.items()
            if block not in rest or len(rest[block][1])
        }
        facts = {
            rest[block][0] if block in rest else block: (term.regular, term.condition) for block, term in terms.items()
        }
        for block, (taken, columns) in chosen.items():
            pivots = matrices[block][taken, columns]
            solved: dict[int, LinearMap] = {}
            name, stay = rest[block]
            if len(stay):
                solved[name] = LinearMap(height=self.sizes[block], rows=stay, matrix=None)
            for other, matrix in narrowed.items():
                part = -matrix[taken] / pivots[:, None]
                if part.any():
                    regular, condition = facts.get(other, (False, 1.0))
                    step = LinearMap(
                        height=self.sizes[block],
                        rows=columns,
                        matrix=part,
                        regular=regular and len(taken) == rows,
                        condition=condition,
                    )
                    solved[other] = solved[other].plus(step) if other in solved else step
            self.rewrite[block] = solved
        if group is not None and constant is None:
            whole = torch.cat([_differences(matrix, group) for matrix in narrowed.values()], dim=1)
            return whole, list(narrowed)
        remaining = torch.cat([matrix[open_rows] for matrix in narrowed.values()], dim=1) if narrowed else None
        return (remaining, list(narrowed)) if remaining is not None and remaining.any() else None

    def _solve(self, matrix: torch.Tensor, blocks: list[int]) -> None:
        """Equations [rows, coordinates of these blocks one after the other] without structure."""
        sizes = matrix.abs().amax(dim=1) if len(matrix) else matrix.new_zeros(0)
        matrix = matrix[sizes > 0] / sizes[sizes > 0][:, None]
        matrix = matrix / matrix.norm(dim=1, keepdim=True)
        if not len(matrix):
            return
        used = matrix.any(dim=0)
        kernel, clear = _kernel(matrix[:, used])
        condition = 1.0 if clear else inf
        free = self.block(kernel.shape[1], self.owner[blocks[0]]) if kernel.shape[1] else None
        at = row = 0
        for block in blocks:
            size = self.sizes[block]
            mine = used[at : at + size]
            at += size
            if not mine.any():
                continue
            places, stay = torch.nonzero(mine).flatten(), torch.nonzero(~mine).flatten()
            solved: dict[int, LinearMap] = {}
            if len(stay):
                other = self.block(len(stay), self.owner[block])
                solved[other] = LinearMap(height=size, rows=stay, matrix=None)
            part = kernel[row : row + len(places)]
            row += len(places)
            if free is not None and part.any():
                solved[free] = LinearMap(height=size, rows=places, matrix=part, condition=condition)
            self.rewrite[block] = solved


def _accumulate(terms: dict[int, Term], block: int, term: Term) -> None:
    if block not in terms:
        terms[block] = term
        return
    mine = terms[block]
    a = mine.dense() if isinstance(mine, Diagonal) else mine
    b = term.dense() if isinstance(term, Diagonal) else term
    size = max(float(a.numbers.abs().max()), float(b.numbers.abs().max()))
    noise = hypot(a.noise, b.noise) + EPS * size
    terms[block] = Dense(a.numbers + b.numbers, noise, condition=max(a.condition, b.condition))


def _substituted(term: Term, path: LinearMap) -> Term:
    """The term of a solved block as one of a free block."""
    if isinstance(term, Diagonal) and path.matrix is None and len(path.rows) == path.height:
        return term
    matrix = path.matrix
    if isinstance(term, Diagonal):
        if matrix is None:
            return replace(term.dense(), numbers=term.dense().numbers[path.rows])
        numbers = term.scale.new_zeros(path.width, len(term.scale))
        numbers[:, path.rows] = (matrix * term.scale[path.rows][:, None]).T
        gain, size = float(matrix.abs().max()), float(term.scale.abs().max())
        noise = (term.noise + 8 * EPS * size) * max(gain, 1.0)
        return Dense(numbers.reshape(path.width, *term.reduced), noise, *_facts(term, path))
    selected = term.numbers[path.rows]
    if matrix is None:
        return replace(term, numbers=selected)
    numbers = (matrix.T @ selected.reshape(len(selected), -1)).reshape(path.width, *term.reduced)
    gain = max(float(matrix.norm(dim=0).max()), 1.0)
    return Dense(numbers, (term.noise + 8 * EPS * float(selected.abs().max())) * gain, *_facts(term, path))


def _facts(term: Term, path: LinearMap) -> tuple[bool, float]:
    """`regular` and `condition` of the one after the other."""
    return term.regular and path.regular, term.condition * path.condition


def _equations(term: Term, reduced: tuple[int, ...], together: Sequence[int]) -> torch.Tensor:
    """[rows, coordinates]; the axes in `together` run fastest, so that their entries are neighbours."""
    given = term.dense() if isinstance(term, Diagonal) else term
    numbers = given.numbers.expand(len(given.numbers), *reduced)
    order = [axis for axis in range(len(reduced)) if axis not in together] + list(together)
    return numbers.permute(0, *(axis + 1 for axis in order)).reshape(len(numbers), -1).T


def _differences(matrix: torch.Tensor, group: int) -> torch.Tensor:
    """Each entry of a group minus the group's first."""
    split = matrix.reshape(-1, group, matrix.shape[1])
    return (split[:, 1:] - split[:, :1]).reshape(-1, matrix.shape[1])


def _levelled(matrix: torch.Tensor, group: int, noise: float) -> torch.Tensor:
    """The matrix, the entries of a group equal to its first where they differ from it by rounding only."""
    split = matrix.reshape(-1, group, matrix.shape[1])
    same = (split - split[:, :1]).abs() <= 16 * noise  # each of the two is off by 8 times the noise at most
    return torch.where(same, split[:, :1], split).reshape(matrix.shape)


def _compressed(matrix: torch.Tensor) -> torch.Tensor:
    """Equivalent equations, no more than coordinates."""
    kept = matrix[matrix.any(dim=1)]
    kept = kept / kept.norm(dim=1, keepdim=True)
    return torch.linalg.qr(kept, mode="r").R if len(kept) > kept.shape[1] else kept


def _kernel(matrix: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Null space [coordinates, k], independent sets of equations apart; and whether every rank is clear."""
    rows, columns = matrix.shape
    pattern = csr_matrix(matrix.ne(0).numpy())
    graph = csr_matrix(
        (np.ones(pattern.nnz), (pattern.nonzero()[0], rows + pattern.nonzero()[1])), shape=(rows + columns,) * 2
    )
    count, label = connected_components(graph, directed=False)
    if count == 1:
        whole, clear = kernel_and_clarity(matrix.numpy())
        return torch.from_numpy(whole), clear
    parts, clear = [], True
    for each in range(count):
        mine, places = np.flatnonzero(label[:rows] == each), np.flatnonzero(label[rows:] == each)
        if len(places):
            part, sure = kernel_and_clarity(matrix.numpy()[np.ix_(mine, places)])
            parts.append((places, part))
            clear = clear and sure
    whole = np.zeros((columns, sum(part.shape[1] for _, part in parts)))
    at = 0
    for places, part in parts:
        whole[places, at : at + part.shape[1]] = part
        at += part.shape[1]
    return torch.from_numpy(whole), clear
