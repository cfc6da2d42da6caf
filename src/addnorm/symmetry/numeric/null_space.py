"""The null space of a Jacobian, with the gap that separates it, and the comparison with claimed directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.redundancy.algebra.rank import svd

_NOISE = 1e-9
"""Columns below this share of the largest are rounding, which must not be scaled up."""
_ROUNDING = 1e-14
"""Singular values below this share of the largest are rounding."""
_SHARE = 1e-3
"""A direction with a larger share in some numbers moves them; a smaller one may be rounding."""
_CLAIM = 1e-8
"""Largest relative effect of a direction that is confirmed."""


@dataclass(frozen=True)
class NullDirections:
    """Directions that change nothing to first order, among the parameters that the outputs read."""

    basis: Tensor
    """float64[column, direction], orthonormal after the columns were scaled."""
    scale: Tensor
    """float64[column]: a direction of parameters is the basis divided by it."""
    values: Tensor
    """Singular values of the scaled Jacobian, in falling order."""
    unread: Tensor
    """bool[column]."""

    @property
    def size(self) -> int:
        """Number of independent directions."""
        return self.basis.shape[1]

    @property
    def gap(self) -> float:
        """The smallest singular value that is not zero, divided by the largest that is; infinity where none is."""
        rank = int((~self.unread).sum()) - self.size
        null = float(self.values[rank]) if self.size and rank < len(self.values) else 0.0
        return float(self.values[rank - 1]) / null if null and rank else float("inf")


def null_space(matrix: Tensor, unread: Tensor) -> NullDirections:
    """Compute the null space of a Jacobian over the columns that are read."""
    size = matrix.norm(dim=0)
    noise = size < _NOISE * size.max()
    scale = torch.where(noise, 1.0, size)
    scaled = torch.where(noise, 0.0, matrix / scale)[:, ~unread]
    triangle = torch.linalg.qr(scaled, mode="r")[1] if scaled.shape[0] > scaled.shape[1] else scaled
    _, values, right = svd(triangle, full_matrices=True)
    rank = _rank(values)
    basis = torch.zeros(matrix.shape[1], right.shape[0] - rank, dtype=torch.float64)
    basis[~unread] = right[rank:].T
    return NullDirections(basis=basis, scale=scale, values=values, unread=unread)


def _rank(values: Tensor) -> int:
    """The rank at the widest gap between 1e-6 and 1e-12 of the largest value; full where no value is that small."""
    if not len(values) or float(values[0]) == 0:
        return 0
    shares = values / values[0]
    low, high = max(1, int((shares > 1e-6).sum())), max(1, int((shares > 1e-12).sum()))
    if high >= len(values) and low >= len(values):
        return len(values)
    return _widest_gap(shares, low, high)


def _widest_gap(shares: Tensor, low: int, high: int) -> int:
    """The number of falling shares before their widest gap, from `low` to `high`."""
    # What is smaller than rounding is no gap: 1e-12 over 1e-16 says nothing that 1e-12 over zero would not.
    floor = torch.clamp(shares, min=_ROUNDING)
    after = torch.cat([floor[1:], floor.new_tensor([_ROUNDING])])
    return low + int(torch.argmax(floor[low - 1 : high] / after[low - 1 : high]))


def moved_numbers(basis: Tensor) -> int:
    """The number of independent ways in which null directions move some numbers, from an orthonormal basis's rows of them.

    A direction that leaves the numbers in place has a share of zero in these rows, up to rounding, which the smallest
    singular value of the Jacobian that is not zero enlarges: shares of 4e-7 were seen in a model of 186 numbers, and on
    another processor of 3e-8. So the widest gap decides here, too, and no fixed size.
    """
    if not basis.numel():
        return 0
    # With 1, the largest share that there can be: small ones may have nothing else to be compared with.
    shares = torch.cat([basis.new_ones(1), torch.linalg.svdvals(basis)])
    return _widest_gap(shares, int((shares > _SHARE).sum()), int((shares > 1e-12).sum())) - 1


def effects(matrix: Tensor, tangents: Tensor) -> Tensor:
    """Return the effect of each direction, [column, direction], relative to the sum of its parts' effects."""
    moved = (matrix @ tangents).norm(dim=0)
    parts = (matrix.norm(dim=0)[:, None] * tangents.abs()).norm(dim=0)
    # A direction whose parts all have no effect, as a key bias has, is compared with the Jacobian as a whole.
    floor = 1e-6 * matrix.norm(dim=0).max() * tangents.norm(dim=0)
    return moved / torch.maximum(parts, floor)


def confirmed(matrix: Tensor, tangents: Tensor) -> Tensor:
    """Return which directions are null: bool[direction]."""
    return effects(matrix, tangents) < _CLAIM


def rank_of(space: NullDirections, tangents: Tensor) -> int:
    """The number of independent directions among the given ones, [column, direction], over what is read."""
    return orthonormal(space, tangents).shape[1]


def orthonormal(space: NullDirections, tangents: Tensor) -> Tensor:
    """An orthonormal basis, after scaling, of the directions over what is read."""
    if not tangents.shape[1]:
        return tangents
    scaled = tangents * space.scale[:, None]
    scaled[space.unread] = 0
    lengths = scaled.norm(dim=0)
    scaled = scaled[:, lengths > 0] / lengths[lengths > 0]
    if not scaled.shape[1]:
        return scaled
    left, values, _ = svd(scaled)
    return left[:, values > 1e-8 * values[0]]


def unexplained(space: NullDirections, tangents: Tensor) -> Tensor:
    """An orthonormal basis of the null directions, after scaling, that are orthogonal to the given ones."""
    known = orthonormal(space, tangents)
    rest = space.basis - known @ (known.T @ space.basis)
    if not rest.shape[1]:
        return rest
    left, values, _ = svd(rest)
    return left[:, values > 1e-6]


def surplus(moved: Mapping[str, Tensor], known: Tensor, names: Sequence[str]) -> Tensor:
    """Null directions that move the named parameters alone and are orthogonal to the known ones, in coordinates.

    Args:
        moved: the Gram matrix of the null space's rows of every parameter.
        known: orthonormal known directions.
        names: parameters that may move.
    """
    outside = [each for name, each in moved.items() if name not in names]
    inside = torch.eye(known.shape[0], dtype=torch.float64)
    if outside:
        values, vectors = torch.linalg.eigh(torch.stack(outside).sum(0))
        inside = vectors[:, values < 1e-12]  # squares of singular values below 1e-6
    new = inside - known @ (known.T @ inside)
    if not new.shape[1]:
        return new
    left, values, _ = svd(new)
    return left[:, values > 1e-5]
