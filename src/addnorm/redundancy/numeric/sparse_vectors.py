"""A null space found numerically, taken apart into free vectors that move few parameters each.

A basis from a singular value decomposition moves everything at once, which does not say what folds into what. Here the null
vectors that lie inside one parameter are taken first, then those inside two, then three; what is left stays as it is.
"""

from itertools import combinations
from math import comb

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.redundancy.algebra.linear_map import LinearMap, dense
from addnorm.redundancy.algebra.svd import svd
from addnorm.redundancy.execution.tracked_parameters import Tracked
from addnorm.redundancy.graph.joint_space import Space

_INSIDE = 1e-7
"""Sine of the angle below which a null vector counts as lying inside some parameters."""
_MOST = 1500
"""Sets of parameters tried of one size."""


def within(null: Float64[Tensor, "move null"], rows: Tensor) -> Float64[Tensor, "null inside"]:
    """Combinations of null vectors (orthonormal columns) that move nothing but some rows, as orthonormal columns."""
    _, values, right = svd(null[rows], full_matrices=False)
    likely = right[values > 0.5].T
    outside = null @ likely
    outside[rows] = 0
    return likely[:, torch.linalg.vector_norm(outside, dim=0) <= _INSIDE]


def peel(tracked: Tracked, null: Float64[Tensor, "move null"]) -> Space:
    """The same space with free vectors that move one, two or three parameters wherever there are such."""
    places = {each.name: torch.arange(each.offset, each.offset + each.size) for each in tracked.entries}
    maps: dict[str, dict[int, LinearMap]] = {name: {} for name in places}
    taken = torch.zeros(null.shape[1], 0, dtype=torch.float64)
    block = 0
    moving = [name for name, rows in places.items() if null.shape[1] and float(null[rows].abs().max()) > _INSIDE]
    for size in (1, 2, 3):
        if comb(len(moving), size) > _MOST:
            break
        for names in combinations(moving, size):
            if taken.shape[1] == null.shape[1]:
                break
            mine = within(null, torch.cat([places[name] for name in names]))
            new = _complement(mine, taken)
            if not new.shape[1]:
                continue
            _add(maps, block, null @ new, {name: places[name] for name in names})
            block += 1
            taken = torch.linalg.qr(torch.cat([taken, new], dim=1)).Q
    rest = _complement(torch.eye(null.shape[1], dtype=torch.float64), taken)
    if rest.shape[1]:
        _add(maps, block, null @ rest, {name: places[name] for name in moving})
    return Space(tracked, maps)


def _add(maps: dict[str, dict[int, LinearMap]], block: int, columns: Tensor, places: dict[str, Tensor]) -> None:
    for name, rows in places.items():
        if float(columns[rows].abs().max()) > _INSIDE:
            maps[name][block] = dense(len(rows), columns[rows])


def _complement(space: Tensor, taken: Tensor) -> Tensor:
    """What of one space (orthonormal columns) is orthogonal, inside it, to its intersection with another."""
    if not taken.shape[1] or not space.shape[1]:
        return space
    left, values, _ = svd(space.T @ taken, full_matrices=True)
    sines = torch.ones(space.shape[1], dtype=torch.float64)
    shared = space @ left[:, : len(values)]
    sines[: len(values)] = torch.linalg.vector_norm(shared - taken @ (taken.T @ shared), dim=0)
    return space @ left[:, sines > _INSIDE]
