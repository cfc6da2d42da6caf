"""Homogeneous linear equations in many unknowns, collected in bulk and solved by elimination and small null spaces.

Nearly all equations of a Transformer have one or two terms (an entry vanishes, two entries are proportional), and nearly
every entry of a weight's tangent occurs in one equation, which defines it. Both are eliminated first, exactly, and of very
many unknowns those that cost little; what is left splits into independent groups of few unknowns, whose null spaces are
computed by singular values. The groups are why the basis is sparse: directions that have nothing to do with each other never
share a vector.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from addnorm.errors import AddnormError
from addnorm.redundancy.algebra.rank import rank_at_gap, svd

Ids = NDArray[np.int64]
Numbers = NDArray[np.float64]
Term = tuple[Ids, Numbers]
"""Unknowns and their coefficients, both [row, term]; the unknown -1 is zero."""

ZERO = -1
"""The unknown that is zero."""
_NOISE = 1e-10
"""Coefficients below this share of the largest of their row are rounding."""
_MANY = 1500
"""Unknowns that singular values are taken of."""
_PIVOT = 0.1
"""Smallest coefficient of a pivot, as a share of its row's largest."""
_MOST_FILL = 4000
"""Most coefficients that the elimination of one unknown may add."""
_RANK = 1e-8
"""Entries of a basis below this are zero."""
_GAP = 1e4
"""Smallest ratio of the singular values between which a rank is clear."""


class IllConditioned(AddnormError):
    """The rank of a system of equations is not clear from its singular values."""


@dataclass
class Equations:
    """Unknowns, numbered from zero, and sparse rows whose product with them vanishes."""

    count: int = 0

    def __post_init__(self) -> None:
        self._columns: list[Ids] = []
        self._numbers: list[Numbers] = []
        self._rows: list[Ids] = []
        self._num_rows = 0
        self._nearly: list[tuple[int, int]] = []

    def unknowns(self, *shape: int) -> Ids:
        """Return new unknowns."""
        size = int(np.prod(shape, dtype=np.int64))
        ids = np.arange(self.count, self.count + size, dtype=np.int64).reshape(shape)
        self.count += size
        return ids

    def require(self, *terms: Term, nearly: bool = False) -> None:
        """Require that the sum of the terms vanishes, row by row.

        Args:
            terms: each [row, term].
            nearly: the equation holds because of a small constant (eps), and is left out for near-symmetries.
        """
        ids = np.concatenate([np.broadcast_to(one, np.broadcast_shapes(one.shape, num.shape)) for one, num in terms], 1)
        numbers = np.concatenate(
            [np.broadcast_to(num, np.broadcast_shapes(one.shape, num.shape)) for one, num in terms], 1
        )
        count, kept = ids.shape[0], (ids != ZERO) & (numbers != 0)
        rows = np.broadcast_to(np.arange(count)[:, None], ids.shape)[kept]
        self._columns.append(ids[kept])
        self._numbers.append(numbers[kept].astype(np.float64))
        self._rows.append(rows + self._num_rows)
        if nearly:
            self._nearly.append((self._num_rows, self._num_rows + count))
        self._num_rows += count

    def vanish(self, ids: Ids) -> None:
        """Require that unknowns vanish."""
        self.require((ids.reshape(-1, 1), np.ones((1, 1))))

    def mentioned(self) -> Ids:
        """The unknowns of which an equation says something."""
        return np.unique(np.concatenate([*self._columns, np.zeros(0, np.int64)]))

    def solve(self, *, nearly: bool = False) -> sparse.csr_matrix:
        """Return a basis of the solutions, [unknown, vector], sparse.

        Args:
            nearly: leave out the equations that hold because of a small constant.

        Raises:
            IllConditioned: a rank is not clear.
        """
        rows = np.concatenate(self._rows) if self._rows else np.zeros(0, np.int64)
        columns = np.concatenate(self._columns) if self._columns else np.zeros(0, np.int64)
        numbers = np.concatenate(self._numbers) if self._numbers else np.zeros(0)
        if nearly:
            dropped = np.zeros(self._num_rows, bool)
            for start, stop in self._nearly:
                dropped[start:stop] = True
            kept = ~dropped[rows]
            rows, columns, numbers = rows[kept], columns[kept], numbers[kept]
        matrix = sparse.csr_matrix((numbers, (rows, columns)), shape=(self._num_rows, self.count))
        return _null_space(matrix)


def _null_space(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Eliminate, solve the rest group by group, and substitute back.

    `back` maps the unknowns that are left to all unknowns. A row with an unknown that no other row has defines it.
    """
    back = sparse.identity(matrix.shape[1], format="csr")
    matrix = _cleaned(matrix)
    while True:
        merged = _merged(matrix)
        if merged is None:
            rows, columns, numbers = _definitions(matrix)
            if not len(rows):
                rows, columns, numbers = _pivots(matrix)
            if not len(rows):
                return _without_noise(back @ _by_groups(matrix))
            kept = np.setdiff1d(np.arange(matrix.shape[1]), columns)
            merged = _embedding(kept, matrix.shape[1])
            defined = sparse.diags(-1 / numbers) @ (matrix[rows] @ merged)
            merged = (merged + _embedding(columns, matrix.shape[1]) @ defined).tocsr()
            matrix = matrix[np.setdiff1d(np.arange(matrix.shape[0]), rows)]
        matrix = _cleaned(matrix @ merged)
        back = (back @ merged).tocsr()


def _without_noise(solved: sparse.csr_matrix) -> sparse.csr_matrix:
    solved = solved.tocsr()
    solved.data[np.abs(solved.data) < 1e-13] = 0
    solved.eliminate_zeros()
    return solved


def _embedding(kept: Ids, size: int) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(len(kept)), (kept, np.arange(len(kept)))), shape=(size, len(kept)))


def _cleaned(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale every row to a largest coefficient of one, and drop rounding and empty rows."""
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    counts = np.diff(matrix.indptr)
    matrix = matrix[counts > 0]
    if not matrix.shape[0]:
        return matrix
    largest = np.maximum.reduceat(np.abs(matrix.data), matrix.indptr[:-1])
    scale = np.repeat(largest, np.diff(matrix.indptr))
    # A row of rounding errors alone came from a difference of equal terms, which were of size one before.
    matrix.data = np.where(scale > _NOISE, matrix.data / np.maximum(scale, 1e-300), 0)
    matrix.data[np.abs(matrix.data) < _NOISE] = 0
    matrix.eliminate_zeros()
    return matrix[np.diff(matrix.indptr) > 0]


def _merged(matrix: sparse.csr_matrix) -> sparse.csr_matrix | None:
    """A map from fewer unknowns that solves all rows of one and two terms; None if there are none."""
    counts = np.diff(matrix.indptr)
    ones, twos = np.flatnonzero(counts == 1), np.flatnonzero(counts == 2)
    if not len(ones) and not len(twos):
        return None
    size = matrix.shape[1]
    zero = np.zeros(size, bool)
    zero[matrix.indices[matrix.indptr[ones]]] = True
    first, second = matrix.indptr[twos], matrix.indptr[twos] + 1
    a, b = matrix.indices[first], matrix.indices[second]
    ratio = -matrix.data[first] / matrix.data[second]  # x_b = ratio * x_a
    links = sparse.csr_matrix((np.ones(len(a)), (a, b)), shape=(size, size))
    num, label = csgraph.connected_components(links, directed=False)
    factor, known, root = np.ones(size), np.zeros(size, bool), np.full(num, -1, np.int64)
    root[label[::-1]] = np.arange(size)[::-1]
    known[root] = True
    while True:  # spread the factors from each group's first unknown along the links
        forward, backward = known[a] & ~known[b], known[b] & ~known[a]
        if not forward.any() and not backward.any():
            break
        factor[b[forward]] = factor[a[forward]] * ratio[forward]
        factor[a[backward]] = factor[b[backward]] / ratio[backward]
        known[b[forward]] = known[a[backward]] = True
    wrong = np.abs(factor[b] - ratio * factor[a]) > 1e-7 * (np.abs(factor[b]) + np.abs(ratio * factor[a]))
    dead = np.zeros(num, bool)
    dead[label[a[wrong]]] = True
    dead[label[zero]] = True
    number = np.cumsum(~dead) - 1
    kept = ~dead[label]
    at = np.flatnonzero(kept)
    return sparse.csr_matrix((factor[kept], (at, number[label[kept]])), shape=(size, int((~dead).sum())))


def _definitions(matrix: sparse.csr_matrix) -> tuple[Ids, Ids, Numbers]:
    """Rows with an unknown that no other row has: the rows, the unknowns, and their coefficients."""
    if not matrix.shape[0]:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    seen = np.bincount(matrix.indices, minlength=matrix.shape[1])
    entries = matrix.tocoo()
    # A pivot below a thousandth of its row would amplify rounding.
    alone = (seen[entries.col] == 1) & (np.abs(entries.data) > 1e-3)
    rows, index = np.unique(entries.row[alone], return_index=True)
    return rows.astype(np.int64), entries.col[alone][index].astype(np.int64), entries.data[alone][index]


def _pivots(matrix: sparse.csr_matrix) -> tuple[Ids, Ids, Numbers]:
    """Rows that define an unknown with little fill-in, none of which has another's: as `_definitions`; none if few unknowns
    are left, or each costs too much.

    A group of thousands of unknowns, as a post-norm stack without biases leaves, takes minutes by singular values, whose cost
    grows with the cube. Its rows have few terms. Small groups are left to singular values, which lose fewer digits.
    """
    seen = np.bincount(matrix.indices, minlength=matrix.shape[1])
    if int((seen > 0).sum()) <= _MANY:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    lengths = np.diff(matrix.indptr)
    cost = ((np.repeat(lengths, lengths) - 1) * (seen[matrix.indices] - 1)).astype(np.float64)
    # Rows are scaled to a largest coefficient of one: a digit is lost at most.
    cost[np.abs(matrix.data) <= _PIVOT] = np.inf
    least = np.minimum.reduceat(cost, matrix.indptr[:-1])
    most = min(_MOST_FILL, 2 * float(least.min()) + 8)
    pivots: list[tuple[int, int]] = []
    taken, touched = set[int](), set[int]()
    for row in np.argsort(least, kind="stable").tolist():
        if least[row] > most:
            break
        start, stop = matrix.indptr[row : row + 2].tolist()
        at = start + int(cost[start:stop].argmin())
        own = set(matrix.indices[start:stop].tolist())
        if int(matrix.indices[at]) not in touched and not own & taken:
            pivots.append((row, at))
            taken.add(int(matrix.indices[at]))
            touched |= own
    rows, places = np.array(pivots, np.int64).reshape(-1, 2).T
    return rows, matrix.indices[places].astype(np.int64), matrix.data[places]


def _by_groups(matrix: sparse.csr_matrix) -> sparse.csr_matrix:
    """The null space of equations that split into independent groups of unknowns."""
    size = matrix.shape[1]
    links = matrix.copy()
    links.data = np.ones_like(links.data)
    num, label = csgraph.connected_components(links.T @ links, directed=False)
    blocks: list[sparse.coo_matrix] = []
    columns = matrix.tocsc()
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(num + 1))
    for group in range(num):
        members = order[bounds[group] : bounds[group + 1]]
        part = columns[:, members].tocsr()
        dense = part[np.diff(part.indptr) > 0].toarray()
        basis = sparse_basis(null_basis(dense)) if len(dense) else np.eye(len(members))
        if basis.shape[1]:
            at, vector = np.nonzero(np.ones_like(basis))
            blocks.append(sparse.coo_matrix((basis.ravel(), (members[at], vector)), shape=(size, basis.shape[1])))
    return sparse.hstack(blocks, format="csr") if blocks else sparse.csr_matrix((size, 0))


def null_basis(matrix: Numbers) -> Numbers:
    """Return an orthonormal basis of a dense matrix's null space, [unknown, vector].

    Raises:
        IllConditioned: the singular values have no gap.
    """
    dense = torch.from_numpy(np.ascontiguousarray(matrix))
    if dense.shape[0] > 2 * dense.shape[1]:
        dense = torch.linalg.qr(dense, mode="r")[1]
    _, values, right = svd(dense, full_matrices=True)
    rank, gap = rank_at_gap(values)
    if gap < _GAP:
        shares = values[rank - 1 : rank + 1] / values[0]
        raise IllConditioned(
            f"expected a clear rank in {matrix.shape[1]} unknowns, got singular values "
            f"{' and '.join(f'{each:.1e}' for each in shares.tolist())} times the largest"
        )
    return right[rank:].T.numpy()


def sparse_basis(basis: Numbers) -> Numbers:
    """Return the basis of the same space that is the identity on some coordinates (reduced echelon form)."""
    made, taken = basis.T.copy(), 0
    for row in range(len(made)):
        rest = np.abs(made[row:])
        if not rest.size or rest.max() < _RANK:
            break
        pivot, column = divmod(int(rest.argmax()), made.shape[1])
        made[[row, row + pivot]] = made[[row + pivot, row]]
        made[row] /= made[row, column]
        others = np.arange(len(made)) != row
        made[others] -= np.outer(made[others, column], made[row])
        taken += 1
    made[np.abs(made) < 1e-12] = 0
    return made[:taken].T


def product_terms(left: Ids | Numbers, right: Ids | Numbers) -> Term:
    """Return the terms of a matrix product of which one factor is unknowns, row by row of the flattened product."""
    rows, inner, columns = left.shape[0], left.shape[1], right.shape[1]
    if left.dtype == np.int64:
        ids = np.broadcast_to(np.asarray(left, np.int64)[:, None, :], (rows, columns, inner))
        numbers = np.broadcast_to(np.asarray(right, np.float64).T[None], (rows, columns, inner))
    else:
        ids = np.broadcast_to(np.asarray(right, np.int64).T[None], (rows, columns, inner))
        numbers = np.broadcast_to(np.asarray(left, np.float64)[:, None, :], (rows, columns, inner))
    return ids.reshape(-1, inner), numbers.reshape(-1, inner)


def negative(term: Term) -> Term:
    """Return a term with the other sign."""
    return term[0], -term[1]
