r"""Null space and rank of a matrix, by one rule for the whole package.

Rule. Let sigma_1 >= sigma_2 >= ... be the singular values of A with n columns. A direction is null if its singular
value is at most `rounding * sqrt(n) * sigma_1`: what rounding leaves of an exact zero. `rounding` is the relative
error of A's entries, so the caller states where they come from (float64 algebra, float32 gradients). Everything above
counts as a constraint.

The singular values are A's own, never the roots of the eigenvalues of A^T A: squaring turns 1e-9 into 1e-18 and loses
it in rounding. A tall matrix is first reduced to its triangular factor R (same singular values). If 1/|R^{-1}|, a
lower bound of the smallest singular value, already exceeds the threshold, the rank is full and no decomposition is
needed.

Most matrices are far from singular: products of weights. For these the Cholesky factor L of A^T A gives the bound
sigma_n^2 >= 1/|L^{-1}|^2 at a fifth of the cost of R. Its error is about n eps |A^T A|; the bound is used only where it
is `_FAR` times that, so that the squares lose nothing that the answer depends on. The full rank of a wide matrix gives
its null space without singular values: the orthogonal complement of its rows.

All decompositions are torch's, not NumPy's or SciPy's: those bring thread pools of their own, which wait actively for the
cores that torch's threads need. On two cores that took half as long again.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float64
from scipy import linalg
from torch import Tensor

FLOAT64 = 1e-10
"""Relative error allowed for float64 matrices that went through products with well-conditioned weights."""

_GAP = 1e4
"""Ratio between singular values that are zero up to rounding and the others, if the two can be separated."""
_ENOUGH = 2
"""Rows per column of a tall matrix that are tried first."""
_FAR = 1e3
"""Ratio between the smallest eigenvalue of a Gram matrix and its rounding error, if the eigenvalue is certain."""
_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-14
"""Singular values below this share of the largest are rounding."""
_HUGE = 1e150
"""Numbers above this have squares that overflow float64."""


def svd(matrix: Tensor, *, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose a float64 matrix as `torch.linalg.svd` does, with the slower QR algorithm if the fast one does not
    converge, which happens with many equal singular values, as null spaces have."""
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=full_matrices)
    except RuntimeError:  # torch's LinAlgError, which it does not export: no convergence
        # SciPy here alone: torch does not offer the algorithm that needs no convergence of the fast one.
        parts = linalg.svd(matrix.numpy(), full_matrices=full_matrices, lapack_driver="gesvd")
        left, values, right = (torch.from_numpy(part) for part in parts)
    return left, values, right


def rank_at_gap(values: Tensor) -> tuple[int, float]:
    """Return the rank at the widest gap of falling singular values between 1e-6 and 1e-12 of the largest, and that gap; the
    rank is full, and the gap infinite, where no value is that small."""
    if not len(values) or float(values[0]) == 0:
        return 0, math.inf
    shares = values / values[0]
    low, high = max(1, int((shares > 1e-6).sum())), max(1, int((shares > 1e-12).sum()))
    if low >= len(values):
        return len(values), math.inf
    rank = widest_gap(shares, low, high)
    after = float(shares[rank]) if rank < len(shares) else 0.0
    return rank, float(shares[rank - 1]) / max(after, _ROUNDING)


def widest_gap(shares: Tensor, low: int, high: int) -> int:
    """The number of falling shares before their widest gap, from `low` to `high`."""
    # What is smaller than rounding is no gap: 1e-12 over 1e-16 says nothing that 1e-12 over zero would not.
    floor = torch.clamp(shares, min=_ROUNDING)
    after = torch.cat([floor[1:], floor.new_tensor([_ROUNDING])])
    return low + int(torch.argmax(floor[low - 1 : high] / after[low - 1 : high]))


def null_space(
    matrix: Float64[np.ndarray, "rows entries"], *, rounding: float = FLOAT64
) -> Float64[np.ndarray, "entries nullity"]:
    """Return orthonormal columns v with A v = 0, by the rule above.

    Args:
        matrix: A. No rows, or only zeros: every direction is null.
        rounding: relative error of its entries.
    """
    return kernel_and_clarity(matrix, rounding=rounding)[0]


def kernel_and_clarity(
    matrix: Float64[np.ndarray, "rows entries"], *, rounding: float = FLOAT64
) -> tuple[Float64[np.ndarray, "entries nullity"], bool]:
    """Return the null space, and True if it is clear: the singular values that count as zero are a factor `_GAP` below
    the others.

    Where values decrease gradually to rounding, as those of a product of many matrices do, the rule above still draws a line,
    but a small value is no proof of a zero.
    """
    rows, columns = matrix.shape
    if matrix.size == 0 or not matrix.any():
        return np.eye(columns), True
    used = np.asarray(matrix.any(axis=0))
    if not used.all():
        return _with_zero_columns(matrix, used, rounding)
    if rows >= columns and _smallest(matrix):
        return np.zeros((columns, 0)), True
    # Full row rank: the null space is what the rows leave over, and no small singular value has to be judged.
    if rows < columns and _smallest(matrix.T):
        return _complement(matrix), True
    reduced = _reduce(matrix)
    if _surely_above(reduced, rounding):
        return np.zeros((columns, 0)), True
    _, computed, right = svd(_tensor(reduced), full_matrices=True)
    values = computed.numpy()
    # A wide matrix has fewer singular values than columns; the missing ones are exact zeros.
    padded = np.zeros(columns)
    padded[: len(values)] = values
    zero = padded <= rounding * np.sqrt(columns) * values[0]
    # The rule draws a line somewhere. It is believed only across a gap: values that fall off gradually have no zero
    # among them that could be told from the next one.
    clear = not zero.any() or padded[zero].max() * _GAP <= padded[~zero].min()
    return np.ascontiguousarray(right.numpy()[zero].T), bool(clear)


def _with_zero_columns(
    matrix: Float64[np.ndarray, "rows entries"], used: Bool[np.ndarray, " entries"], rounding: float
) -> tuple[Float64[np.ndarray, "entries nullity"], bool]:
    """The null space of a matrix with columns of zeros, which are null directions without any arithmetic."""
    inside, clear = kernel_and_clarity(np.ascontiguousarray(matrix[:, used]), rounding=rounding)
    zeros = np.flatnonzero(~used)
    whole = np.zeros((matrix.shape[1], inside.shape[1] + len(zeros)))
    whole[used, : inside.shape[1]] = inside
    whole[zeros, inside.shape[1] + np.arange(len(zeros))] = 1.0
    return whole, clear


def conditioned(matrix: Float64[np.ndarray, "entries columns"]) -> tuple[bool, float]:
    """Return, for x -> x A, True if only x = 0 gives zero, by the rule above; and approximately the ratio of the root
    mean square of A's singular values to the smallest one that is not null."""
    small = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    if not small.any():
        return matrix.shape[0] == 0, 1.0
    # Full rank with fewer rows implies full rank with all.
    first = small[: _ENOUGH * small.shape[1]]
    for tried in (first, small) if len(first) < len(small) else (small,):
        if smallest := _smallest(tried):
            size = float(np.linalg.norm(tried)) / np.sqrt(tried.shape[1])
            return matrix.shape[0] <= matrix.shape[1], max(1.0, float(size / smallest))
    reduced = _triangular(small)
    size = float(np.linalg.norm(reduced)) / np.sqrt(reduced.shape[1])
    if smallest := _surely_above(reduced, FLOAT64):
        return matrix.shape[0] <= matrix.shape[1], max(1.0, float(size / smallest))
    values = _singular_values(reduced)
    kept = values[values > FLOAT64 * np.sqrt(reduced.shape[1]) * values[0]]
    full = len(kept) == matrix.shape[0]
    return full, max(1.0, float(size / kept[-1]))


def rank(matrix: Float64[np.ndarray, "rows entries"]) -> int:
    """Return the number of singular values that are not null by the rule above."""
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    if matrix.size == 0 or not matrix.any():
        return 0
    if _smallest(matrix):
        return matrix.shape[1]
    reduced = _reduce(matrix)
    if _surely_above(reduced, FLOAT64):
        return reduced.shape[1]
    values = _singular_values(reduced)
    return int((values > FLOAT64 * np.sqrt(reduced.shape[1]) * values[0]).sum())


def _smallest(matrix: Float64[np.ndarray, "rows entries"]) -> float:
    """A lower bound of the smallest singular value of a square or tall matrix, from the Cholesky factor of its Gram matrix; 0
    where rounding of the squares could decide."""
    given = _tensor(matrix)
    gram = given.T @ given
    size = float(torch.linalg.matrix_norm(gram))
    if not 0 < size < _HUGE:
        return 0.0
    factor, info = torch.linalg.cholesky_ex(gram)
    if int(info) != 0:
        return 0.0
    # The trace of (A^T A)^{-1} is |L^{-1}|^2.
    trace = float(torch.cholesky_inverse(factor).trace())
    bound = 1 / trace if 0 < trace < math.inf else 0.0
    # 1 / trace is at most the smallest eigenvalue. Below the rounding of the squares it says nothing, and the caller
    # decomposes the matrix itself.
    return bound**0.5 if bound >= _FAR * len(gram) * _EPS * size else 0.0


def _complement(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, "entries nullity"]:
    """Orthonormal columns orthogonal to the rows of a wide matrix of full rank: the last columns of Q in A^T = Q R."""
    rows, columns = matrix.shape
    reflectors, scales = torch.geqrf(_tensor(matrix.T))
    last = torch.zeros(columns, columns - rows, dtype=torch.float64)
    last[rows:] = torch.eye(columns - rows, dtype=torch.float64)
    return np.ascontiguousarray(torch.ormqr(reflectors, scales, last).numpy())


def _reduce(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, "fewer entries"]:
    """R of A = Q R if that is smaller."""
    rows, columns = matrix.shape
    return _triangular(matrix) if rows > columns > 0 else matrix


def _triangular(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, "fewer entries"]:
    """R of A = Q R."""
    return np.asarray(torch.linalg.qr(_tensor(matrix), mode="r").R.numpy())


def _singular_values(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, " values"]:
    return np.asarray(svd(_tensor(matrix))[1].numpy())


def _surely_above(reduced: Float64[np.ndarray, "rows entries"], rounding: float) -> float:
    """A lower bound of a triangular factor's smallest singular value, 1/|R^{-1}|_F; 0 where it does not prove full rank, for
    which |R|_F >= sigma_max is taken as the largest."""
    rows, columns = reduced.shape
    if rows != columns or not np.diagonal(reduced).all() or np.tril(reduced, -1).any():
        return 0.0
    one = torch.eye(rows, dtype=torch.float64)
    inverse = torch.linalg.solve_triangular(_tensor(reduced), one, upper=True)
    if not float(inverse.abs().max()) < _HUGE:
        return 0.0
    # 1 / |R^-1| in the Frobenius norm never exceeds the smallest singular value, and |R| never falls below the largest:
    # full rank by these bounds is full rank by the rule.
    smallest = 1 / float(torch.linalg.matrix_norm(inverse))
    return smallest if smallest > rounding * np.sqrt(columns) * np.linalg.norm(reduced) else 0.0


def _tensor(matrix: Float64[np.ndarray, "rows entries"]) -> Tensor:
    """The same numbers for torch, without a copy where torch can read them in place."""
    shared = matrix.flags.writeable and min(matrix.strides) >= 0
    return torch.from_numpy(matrix) if shared else torch.tensor(matrix)


def fewer_rows(matrix: Tensor) -> Tensor:
    """Rows with the same singular values and the same null space: without zero rows, and where more rows are left than
    columns that are not zero, their triangular factor.

    In a stack of layers most parameters depend on a few coordinates of another layer, one per norm, with hundreds of rows.
    """
    rows, used = matrix[matrix.any(dim=1)], matrix.any(dim=0)
    if len(rows) <= int(used.sum()):
        return rows
    factor = torch.linalg.qr(rows[:, used], mode="r").R
    fewer = matrix.new_zeros(len(factor), matrix.shape[1])
    fewer[:, used] = factor
    return fewer
