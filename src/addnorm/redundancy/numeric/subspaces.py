"""Subspaces of the tracked coordinates, given by orthonormal columns."""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from addnorm.redundancy.algebra.rank import svd

INSIDE = 1e-7
"""Sine of the angle below which a direction counts as lying inside a subspace."""


def combinations_inside(space: Float64[Tensor, "move null"], rows: slice | Tensor) -> Float64[Tensor, "null inside"]:
    """Return the combinations of a subspace's columns that vanish outside of some coordinates, as orthonormal columns."""
    _, values, right = svd(space[rows], full_matrices=False)
    # A direction inside has the singular value one; 0.5 only preselects, and what it leaks outside decides. (1 - value
    # would lose half of the digits.)
    likely = right[values > 0.5].T
    outside = space @ likely
    outside[rows] = 0
    return likely[:, torch.linalg.vector_norm(outside, dim=0) <= INSIDE]


def inside(space: Float64[Tensor, "move null"], place: slice) -> Float64[Tensor, "entry redundant"]:
    """Return the directions of a subspace that lie inside one parameter, as orthonormal columns over its entries."""
    left, values, right = svd(space[place], full_matrices=False)
    likely = values > 0.5
    outside = space.clone()
    outside[place] = 0
    leak = torch.linalg.vector_norm(outside @ right[likely].T, dim=0)
    return left[:, likely][:, leak <= INSIDE]


def unit_coordinates(space: Float64[Tensor, "move null"]) -> Bool[Tensor, " move"]:
    """Mark the coordinates whose unit vector lies in a subspace."""
    return (1 - space.square().sum(1)).abs() <= INSIDE


def without_coordinates(
    space: Float64[Tensor, "move null"], coordinates: Bool[Tensor, " move"]
) -> Float64[Tensor, "move kept"]:
    """Remove from a subspace the unit vectors of some coordinates, which lie in it."""
    if not bool(coordinates.any()):
        return space
    left, values, _ = svd(torch.where(coordinates[:, None], 0.0, space), full_matrices=False)
    return left[:, values > 0.5]


def sum_of(first: Tensor, second: Tensor) -> Tensor:
    """Return the sum of two subspaces; the columns of the first come first, unchanged."""
    beyond = second - first @ (first.T @ second)
    # Twice: the first projection leaves rounding of the size of what it removed, which may be all there is.
    beyond = beyond - first @ (first.T @ beyond)
    if not beyond.shape[1]:
        return first
    left, values, _ = svd(beyond)
    return torch.cat([first, left[:, values > INSIDE]], dim=1)


def beyond_claim(
    space: Float64[Tensor, "move null"], claimed: Float64[Tensor, "move claim"], unread: Bool[Tensor, " move"]
) -> Float64[Tensor, "move beyond"]:
    """Return the part of a subspace outside a claimed one, restricted to the coordinates that were read: no measurement
    contradicts a claim about the others."""
    if not bool(unread.any()):
        return space
    left, values, _ = svd(torch.where(unread[:, None], 0.0, claimed), full_matrices=False)
    read = left[:, values > INSIDE]
    # Claimed directions are compared in the coordinates that were read, where alone the measurement can agree or
    # disagree with them.
    rest = space - read @ (read.T @ space)
    left, values, _ = svd(rest - read @ (read.T @ rest), full_matrices=False)
    return left[:, values > INSIDE]


def complement(space: Tensor, removed: Tensor, apart: float = INSIDE) -> Tensor:
    """Return the part of a subspace that is orthogonal, inside it, to its intersection with another one; directions that are
    nearer to it than the sine `apart` count as lying in it."""
    if not removed.shape[1] or not space.shape[1]:
        return space
    left, values, _ = svd(space.T @ removed, full_matrices=True)
    sines = torch.ones(space.shape[1], dtype=torch.float64)
    # Sines of the angles, measured as lengths: a cosine near one has lost the digits of the angle.
    shared = space @ left[:, : len(values)]
    sines[: len(values)] = torch.linalg.vector_norm(shared - removed @ (removed.T @ shared), dim=0)
    return space @ left[:, sines > apart]
