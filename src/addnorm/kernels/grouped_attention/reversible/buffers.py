"""Memory for one running sum of scores and for its gradient, kept from one training step to the next.

A tile of scores is contiguous, and the tiles lie one after another, so that causal attention takes half of length². The
buffers are kept because a fresh array of this size costs more than the arithmetic on it: the system clears every page when
it is first written.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.panel import Panel
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.row_blocks import on_device, slab_entries
from addnorm.kernels.grouped_attention.tiles import MOST_ROWS, USUAL_ROWS, Tile, spans, tile_of

MANY_KEYS = 4096
"""Keys from which a tile of causal attention has MOST_ROWS."""
MOST_GRADIENTS = 2
"""Backward passes that a thread may have under way: one inside another. A further one ends the oldest, which may have ended
without reaching the first layer."""


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


@dataclass
class GradientSum:
    """The gradient of the running sum during one backward pass."""

    number: int
    """Number of the backward pass."""
    values: Tensor
    """Flat."""
    layer: int
    """The layer that must come next."""
    thread: int
    """The thread that began it."""


class ScoreBuffers:
    """The buffers of one model. Copies of a model, also by pickle, begin with empty ones.

    A buffer serves any number of passes: `holds` tells whose scores it has, and a pass that finds another's computes its own
    again. Threads take turns, layer by layer.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.holds: tuple[int, int] | None = None
        """Number of the forward pass whose scores are summed, and how many of its layers; None while they are changed, so
        that an exception leaves no sum that is half of one layer."""
        self._numbers = count(1)
        self._total: Tensor | None = None
        self._gradients: dict[int, GradientSum] = {}
        self._free: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "ScoreBuffers":
        return ScoreBuffers()

    def __reduce__(self) -> tuple[type["ScoreBuffers"], tuple[()]]:
        return ScoreBuffers, ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        kept = (self._total, self._free, *(under_way.values for under_way in self._gradients.values()))
        return sum(flat.numel() * flat.element_size() for flat in kept if flat is not None)

    def new_number(self) -> int:
        """A number for a pass, forward or backward, that no other pass of this model has."""
        return next(self._numbers)

    def total(self, entries: int, problem: AttentionProblem) -> Tensor:
        """The flat buffer of the running sum, of at least `entries`. A larger one is empty."""
        if not _fits(self._total, entries, problem):
            self.holds = self._total = None  # the old one goes before the new one comes
            self._total = _flat(entries, problem)
        assert self._total is not None
        return self._total

    def begin_gradient(self, entries: int, problem: AttentionProblem, *, layer: int) -> GradientSum:
        """A gradient for a backward pass that begins at a layer; its values are not initialised."""
        thread = threading.get_ident()
        own = [under_way for under_way in self._gradients.values() if under_way.thread == thread]
        if len(own) >= MOST_GRADIENTS:
            self.end_gradient(own[0])
        values, self._free = self._free, None
        if values is None or not _fits(values, entries, problem):
            del values
            values = _flat(entries, problem)
        begun = GradientSum(self.new_number(), values, layer, thread)
        self._gradients[begun.number] = begun
        return begun

    def gradient(self, number: int, *, layer: int) -> GradientSum:
        """The gradient of a backward pass that has come to a layer.

        Raises:
            InputError: the layer above was not the last one, so the gradient is not that of this pass.
        """
        under_way = self._gradients.get(number)
        if under_way is None or under_way.layer != layer:
            raise InputError(
                f"attention: running: expected backward to reach layer {layer} once, right after the layer above it in the "
                f"same pass, got other passes in between. Use attention='streaming' for backward passes inside one another."
            )
        return under_way

    def end_gradient(self, ended: GradientSum) -> None:
        """Take a gradient back; one buffer is kept for the next pass."""
        del self._gradients[ended.number]
        self._free = ended.values


def _flat(entries: int, problem: AttentionProblem) -> Tensor:
    return torch.empty(entries, dtype=problem.dtype, device=problem.value.device)


def _fits(flat: Tensor | None, entries: int, problem: AttentionProblem) -> bool:
    wanted = (problem.dtype, problem.value.device)
    return flat is not None and flat.numel() >= entries and (flat.dtype, flat.device) == wanted
