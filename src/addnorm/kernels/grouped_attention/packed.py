"""Scores of a whole problem in a flat buffer.

A tile is contiguous, and the tiles lie one after another, so that causal attention takes half of length². Buffers are kept from
one training step to the next, because a fresh array of this size costs more than the arithmetic on it: the system clears every
page when it is first written.

On a GPU the places are blocks of query rows one after another, as wide as the keys that they may see.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention import launches
from addnorm.kernels.grouped_attention.panel import Panel, carve
from addnorm.kernels.grouped_attention.planned import runs_on
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.tiles import MOST_ROWS, USUAL_ROWS, Tile, spans, tile_of

MANY_KEYS = 4096
"""Keys from which a tile of causal attention has MOST_ROWS."""


def rows_of(problem: AttentionProblem) -> int:
    """Query rows of a tile: few for short causal sequences, of which a tile multiplies half a square too much; many for long
    ones, whose products are faster."""
    if not problem.causal:
        return MOST_ROWS
    return USUAL_ROWS if problem.key < MANY_KEYS else MOST_ROWS


@dataclass(frozen=True)
class Layout:
    """Places of the tiles of a problem in a buffer. They depend on sizes alone, so all layers of a model have the same one."""

    tile: Tile
    entries: int
    """Entries of all tiles together."""

    @classmethod
    def of(cls, problem: AttentionProblem) -> "Layout":
        """Lay out the scores of a problem."""
        # From sizes alone, never from strides or from where a tensor lies: the backward pass of a later layer must find each
        # tile where the forward pass of an earlier one put it.
        tile = tile_of(problem, most_rows=rows_of(problem))
        if on_device(problem):
            return cls(tile, problem.batch * problem.heads * slab_entries(problem))
        seen = ((rows.stop - rows.start, problem.keys_seen(rows)) for rows in spans(problem.query, tile.rows))
        entries = problem.batch * problem.heads * sum(height * (keys.stop - keys.start) for height, keys in seen)
        return cls(tile, entries)

    def panels(self, problem: AttentionProblem) -> Iterator[tuple[Panel, list[tuple[slice, int]]]]:
        """Every panel with its tiles: their query rows, and where their scores begin in a buffer."""
        start = 0
        for batch in spans(problem.batch, self.tile.batch):
            for kv_heads in spans(problem.kv_heads, self.tile.kv_heads):
                panel = Panel(problem, batch, kv_heads, problem.dtype)
                tiles = []
                for rows in spans(problem.query, self.tile.rows):
                    tiles.append((rows, start))
                    slabs, lines, keys = panel.tile_shape(rows)
                    start += slabs * lines * keys
                yield panel, tiles


def on_device(problem: AttentionProblem) -> bool:
    """True if the sum is kept by kernels for a GPU, False if by tiles of a CPU."""
    return runs_on(problem).type == "cuda"


def block_rows(problem: AttentionProblem) -> int:
    """Query rows of a block, a power of two; the same for every layer of a model."""
    return launches.launch_of("attend_sum", problem.queries[-1], problem.value, problem.query, problem.key).rows


def slab_entries(problem: AttentionProblem) -> int:
    """Entries of all blocks of one head of one sequence."""
    # The kernels compute the same places (triton/running.py, _places). A causal block is as wide as its last row sees; the last
    # rows of the last block do not exist, but have their places, so that all blocks are alike.
    p, rows = problem, block_rows(problem)
    blocks = -(-p.query // rows)
    if not p.causal:
        return blocks * rows * p.key
    return sum(rows * min(p.key, (block + 1) * rows + p.offset) for block in range(blocks))


def own_term(problem: AttentionProblem) -> AttentionProblem:
    """The problem with its last term alone."""
    return replace(problem, queries=problem.queries[-1:], keys=problem.keys[-1:])


def tile_of_flat(flat: Tensor, start: int, panel: Panel, rows: slice) -> Float[Tensor, "slab line key"]:
    """View of one tile that begins at `start` in a flat buffer."""
    return carve(flat[start:], panel.tile_shape(rows))


def new_flat(entries: int, problem: AttentionProblem) -> Tensor:
    """A flat buffer for scores of a problem, not initialised."""
    return torch.empty(entries, dtype=problem.dtype, device=problem.value.device)


def fits(flat: Tensor | None, entries: int, problem: AttentionProblem) -> bool:
    """True if a buffer has room for that many scores of a problem, of its type and on its device."""
    # A larger buffer serves a smaller problem, because a layout begins at its first entry. Another type or device never does: a
    # view would read the same bytes as other numbers.
    wanted = (problem.dtype, problem.value.device)
    return flat is not None and flat.numel() >= entries and (flat.dtype, flat.device) == wanted
