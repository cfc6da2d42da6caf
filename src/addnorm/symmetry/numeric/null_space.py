"""The null space of a Jacobian, with the gap that separates it, and the comparison with claimed directions."""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.redundancy.algebra.rank import rank_at_gap, svd, widest_gap

_NOISE = 1e-9
"""Columns below this share of the largest are rounding, which must not be scaled up."""
_SHARE = 1e-3
"""A direction with a larger share in some numbers moves them; a smaller one may be rounding."""
_PART = 1e-5
"""A smaller part of a direction is rounding."""
CLAIM = 1e-8
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
    rank = rank_at_gap(values)[0]
    basis = torch.zeros(matrix.shape[1], right.shape[0] - rank, dtype=torch.float64)
    basis[~unread] = right[rank:].T
    return NullDirections(basis=basis, scale=scale, values=values, unread=unread)


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
    return widest_gap(shares, int((shares > _SHARE).sum()), int((shares > 1e-12).sum())) - 1


def effects(matrix: Tensor, tangents: Tensor) -> Tensor:
    """Return the effect of each direction, [column, direction], relative to the sum of its parts' effects."""
    moved = (matrix @ tangents).norm(dim=0)
    parts = (matrix.norm(dim=0)[:, None] * tangents.abs()).norm(dim=0)
    # A direction whose parts all have no effect, as a key bias has, is compared with the Jacobian as a whole.
    floor = 1e-6 * matrix.norm(dim=0).max() * tangents.norm(dim=0)
    return moved / torch.maximum(parts, floor)


def confirmed(matrix: Tensor, tangents: Tensor) -> Tensor:
    """Return which directions are null: bool[direction]."""
    return effects(matrix, tangents) < CLAIM


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


def leaving_still(inside: Tensor, rows: Tensor) -> Tensor:
    """An orthonormal basis, in coordinates of the null space, of what of `inside` leaves some numbers as they are.

    Args:
        inside: orthonormal directions, [coordinate, direction].
        rows: the null space's rows of the numbers, [number, coordinate].
    """
    _, values, right = svd(rows @ inside, full_matrices=True)
    return inside @ right[int((values > 1e-6).sum()) :].T


def is_reached(rest: Tensor, inside: Tensor) -> bool:
    """True if some direction of `rest` has a part in the span of `inside`, both orthonormal."""
    return float((rest.T @ inside).norm()) > _PART


def reached(rest: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The directions of `rest` that have a part in the span of `inside`, and those that have none."""
    parts = rest.T @ inside
    squares, vectors = torch.linalg.eigh(parts @ parts.T)
    has_part = squares > _PART**2
    return rest @ vectors[:, has_part], rest @ vectors[:, ~has_part]
