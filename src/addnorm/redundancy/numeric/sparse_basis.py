"""Decomposition of a numerical null space into free vectors that move few parameters each.

A basis from a singular value decomposition moves all parameters at once, which does not show which one folds into
which. Here the null vectors inside one parameter are separated first, then those inside two, then three; the rest stays
as it is.
"""

from itertools import combinations
from math import comb

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.redundancy.algebra.linear_map import LinearMap, dense
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.numeric.subspaces import INSIDE, combinations_inside, complement

_MOST_SETS = 1500
"""Largest number of parameter sets of one size that are tried."""


def sparse_null_space(tracked: TrackedParameters, null: Float64[Tensor, "move null"]) -> NullSpace:
    """Represent a null space by free vectors that move one, two or three parameters wherever such vectors exist."""
    places = {each.name: torch.arange(each.offset, each.offset + each.size) for each in tracked.entries}
    maps: dict[str, dict[int, LinearMap]] = {name: {} for name in places}
    separated = torch.zeros(null.shape[1], 0, dtype=torch.float64)
    block = 0
    moving = [name for name, rows in places.items() if null.shape[1] and float(null[rows].abs().max()) > INSIDE]
    for size in (1, 2, 3):
        if comb(len(moving), size) > _MOST_SETS:
            break
        for names in combinations(moving, size):
            if separated.shape[1] == null.shape[1]:
                break
            inside = combinations_inside(null, torch.cat([places[name] for name in names]))
            new = complement(inside, separated)
            if not new.shape[1]:
                continue
            _add(maps, block, null @ new, {name: places[name] for name in names})
            block += 1
            separated = torch.linalg.qr(torch.cat([separated, new], dim=1)).Q
    rest = complement(torch.eye(null.shape[1], dtype=torch.float64), separated)
    if rest.shape[1]:
        _add(maps, block, null @ rest, {name: places[name] for name in moving})
    return NullSpace(tracked, maps)


def _add(maps: dict[str, dict[int, LinearMap]], block: int, columns: Tensor, places: dict[str, Tensor]) -> None:
    for name, rows in places.items():
        if float(columns[rows].abs().max()) > INSIDE:
            maps[name][block] = dense(len(rows), columns[rows])
