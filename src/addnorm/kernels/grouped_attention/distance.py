r"""A bias that depends on the distance of query and key alone, stored as one number per head and distance.

    B[h, i, j] = values[h, (i - j) - first]

A matrix would have heads · query · key entries; this form has heads · span, and each tile builds its own part of the matrix.
A tile of n rows and m keys has n + m - 1 consecutive distances, so its part is a window that moves by one entry per row, and
the gradient is a sum along the diagonals.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class DistanceBias:
    """A bias on the summed scores as a function of the distance: position of the query minus position of the key.

    Example: a penalty of 0.1 per position of distance, for 16 positions and all heads

        DistanceBias(values=-0.1 * torch.arange(16.0)[None], first=0)
    """

    values: Float[Tensor, "heads span"]
    """The bias per query head (or 1 for all of them) at the distances first, first + 1, …, first + span - 1."""
    first: int
    """Distance of values[:, 0]; negative where a query sees later keys."""

    def matrix(self, query: int, key: int) -> Float[Tensor, "1 heads query key"]:
        """Expand the bias of the last `query` of `key` positions to a matrix."""
        return matrix(self.values[None], self.first, query, key)


def matrix(values: Tensor, first: int, query: int, key: int) -> Float[Tensor, "batch heads query key"]:
    """Expand values "batch heads span" to a matrix; distances before the first, which a causal mask hides, are zero."""
    queries, keys = (torch.arange(start, key, device=values.device) for start in (key - query, 0))
    nearest = 1 - query
    return _window(values, first, nearest, key - 1)[..., queries[:, None] - keys - nearest]


def part(values: Tensor, first: int, rows: slice, offset: int, keys: int) -> Float[Tensor, "batch heads rows key"]:
    """Expand the values to the part of the matrix for one tile: some rows, the first `keys` keys.

    Args:
        values: "batch heads span".
        first: distance of the first value.
        rows: rows of the matrix.
        offset: position of the matrix's first row.
        keys: number of keys.
    """
    farthest = rows.stop - 1 + offset
    window = _window(values, first, rows.start + offset - keys + 1, farthest)
    # Windows of the reversed distances start at the last row; strides cannot be negative, so flipping the rows copies them.
    return window.flip(-1).unfold(-1, keys, 1).flip(-2)


def add_diagonals(total: Tensor, first: int, tile: Tensor, rows: slice, offset: int) -> None:
    """Add the gradient of a tile, "batch heads rows key", to the gradient of the values, "batch heads span"."""
    *outer, height, keys = tile.shape
    width = height + keys - 1
    sheared = tile.new_zeros(*outer, height, width)
    # The same entries, each row one column further to the left than the row before: diagonals become columns.
    moved = sheared.as_strided(tile.shape, (*sheared.stride()[:-2], width - 1, 1), height - 1)
    moved.copy_(tile)
    by_distance = sheared.sum(-2).flip(-1)
    nearest = rows.start + offset - keys + 1
    hidden = max(0, first - nearest)
    total[..., nearest + hidden - first : rows.stop + offset - first] += by_distance[..., hidden:]


def _window(values: Tensor, first: int, nearest: int, farthest: int) -> Tensor:
    """Return the values of the distances nearest … farthest, with zeros before the first stored one."""
    hidden = max(0, first - nearest)
    return F.pad(values[..., nearest + hidden - first : farthest + 1 - first], (hidden, 0))
