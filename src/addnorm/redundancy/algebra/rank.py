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
"""

import numpy as np
from jaxtyping import Float64
from scipy import linalg

FLOAT64 = 1e-10
"""Relative error allowed for float64 matrices that went through products with well-conditioned weights."""

_GAP = 1e4
"""Ratio between singular values that are zero up to rounding and the others, if the two can be separated."""
_ENOUGH = 2
"""Rows per column of a tall matrix that are tried first."""
_FAR = 1e3
"""Ratio between the smallest eigenvalue of a Gram matrix and its rounding error, if the eigenvalue is certain."""
_EPS = float(np.finfo(np.float64).eps)
_HUGE = 1e150
"""Numbers above this have squares that overflow float64."""


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
    if rows >= columns and _smallest(matrix):
        return np.zeros((columns, 0)), True
    if rows < columns and _smallest(matrix.T):
        return _complement(matrix), True
    reduced = _reduce(matrix)
    if _surely_full(reduced, rounding):
        return np.zeros((columns, 0)), True
    _, values, right = _svd(reduced)
    padded = np.zeros(columns)
    padded[: len(values)] = values
    zero = padded <= rounding * np.sqrt(columns) * values[0]
    clear = not zero.any() or padded[zero].max() * _GAP <= padded[~zero].min()
    return np.ascontiguousarray(right[zero].T), bool(clear)


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
    reduced = np.asarray(np.linalg.qr(small, mode="r"))
    size = float(np.linalg.norm(reduced)) / np.sqrt(reduced.shape[1])
    if _surely_full(reduced, FLOAT64):
        smallest = float(1 / np.linalg.norm(linalg.lapack.dtrtri(reduced)[0]))
        return matrix.shape[0] <= matrix.shape[1], max(1.0, float(size / smallest))
    values = np.linalg.svd(reduced, compute_uv=False)
    kept = values[values > FLOAT64 * np.sqrt(reduced.shape[1]) * values[0]]
    full = len(kept) == matrix.shape[0]
    return full, max(1.0, float(size / kept[-1]))


def rank(matrix: Float64[np.ndarray, "rows entries"], *, rounding: float = FLOAT64) -> int:
    """Return the number of singular values that are not null by the rule above."""
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    if matrix.size == 0 or not matrix.any():
        return 0
    if _smallest(matrix):
        return matrix.shape[1]
    reduced = _reduce(matrix)
    if _surely_full(reduced, rounding):
        return reduced.shape[1]
    values = np.linalg.svd(reduced, compute_uv=False)
    return int((values > rounding * np.sqrt(reduced.shape[1]) * values[0]).sum())


def _smallest(matrix: Float64[np.ndarray, "rows entries"]) -> float:
    """A lower bound of the smallest singular value of a square or tall matrix, from the Cholesky factor of its Gram matrix; 0
    where rounding of the squares could decide."""
    # The Gram matrix is symmetric: its lower triangle costs half of the product. LAPACK leaves the other triangle zero.
    plain = matrix.flags.f_contiguous
    with np.errstate(over="ignore", invalid="ignore"):
        gram = linalg.blas.dsyrk(1.0, matrix if plain else matrix.T, trans=int(plain), lower=1)
        lower, diagonal = float(np.linalg.norm(gram)), float(np.linalg.norm(np.diagonal(gram)))
    if not 0 < lower < _HUGE:
        return 0.0
    size = (2 * lower**2 - diagonal**2) ** 0.5
    factor, info = linalg.lapack.dpotrf(gram, lower=1, overwrite_a=1)
    if info != 0:
        return 0.0
    inverse, info = linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
    bound = 1 / float(np.linalg.norm(inverse)) ** 2 if info == 0 else 0.0
    return bound**0.5 if bound >= _FAR * len(gram) * _EPS * size else 0.0


def _complement(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, "entries nullity"]:
    """Orthonormal columns orthogonal to the rows of a wide matrix of full rank: the last columns of Q in A^T = Q R."""
    rows, columns = matrix.shape
    reflectors, scales = np.linalg.qr(matrix.T, mode="raw")
    last = np.zeros((columns, columns - rows), order="F")
    last[rows:] = np.eye(columns - rows)
    found, _, info = linalg.lapack.dormqr("L", "N", np.asfortranarray(reflectors.T), scales, last, 64 * columns)
    if info != 0:
        raise ValueError(f"expected reflectors from a QR decomposition, got error {info} of LAPACK")
    return np.ascontiguousarray(found)


def _reduce(matrix: Float64[np.ndarray, "rows entries"]) -> Float64[np.ndarray, "fewer entries"]:
    """R of A = Q R if that is smaller."""
    rows, columns = matrix.shape
    return np.asarray(np.linalg.qr(matrix, mode="r")) if rows > columns > 0 else matrix


def _surely_full(reduced: Float64[np.ndarray, "rows entries"], rounding: float) -> bool:
    """True if a triangular factor certainly has full rank: 1/|R^{-1}|_F <= sigma_min, and |R|_F >= sigma_max."""
    rows, columns = reduced.shape
    if rows != columns or not np.diagonal(reduced).all() or np.tril(reduced, -1).any():
        return False
    inverse, info = linalg.lapack.dtrtri(reduced)
    if info != 0 or not np.abs(inverse).max() < _HUGE:
        return False
    smallest = 1 / np.linalg.norm(inverse)
    return bool(smallest > rounding * np.sqrt(columns) * np.linalg.norm(reduced))


def _svd(
    matrix: Float64[np.ndarray, "rows entries"],
) -> tuple[Float64[np.ndarray, "rows rows"], Float64[np.ndarray, " values"], Float64[np.ndarray, "entries entries"]]:
    """The decomposition with all right vectors; with the slower driver if the fast one does not converge."""
    try:
        return np.linalg.svd(matrix, full_matrices=True)
    except np.linalg.LinAlgError:
        return linalg.svd(matrix, full_matrices=True, lapack_driver="gesvd")
