"""What streaming attention computes, for `torch.utils.flop_counter.FlopCounterMode`.

The counter knows the batched product only out of place. Without its in-place form it misses most of what the tiles
compute: scores and the gradients of keys and values are accumulated in place, so that no product's result is held beside
its sum. And to walk through the tiles on the meta device would take minutes for a model of its paper's size: inside
`counting_at_once` they are one product that costs as much.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.utils.flop_counter import baddbmm_flop, flop_registry, register_flop_formula

from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.tiles import Tile, spans


def count_in_place_products() -> None:
    """Teach the counter, unless this torch has been taught already."""
    if torch.ops.aten.baddbmm_ not in flop_registry:
        register_flop_formula(torch.ops.aten.baddbmm_)(_baddbmm_in_place_flop)


def _baddbmm_in_place_flop(total: Any, first: Any, second: Any, **_: Any) -> int:
    """Operations of total += first @ second, from the shapes."""
    return int(baddbmm_flop(total, first, second))


_AT_ONCE = ContextVar("at_once", default=False)


@contextmanager
def counting_at_once() -> Iterator[None]:
    """Inside, attention on the meta device counts what its tiles compute and does not walk through them.

    Results have their shapes and no numbers, as ever on that device; operations and the memory of single tiles do not show.
    """
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def at_once(problem: AttentionProblem) -> bool:
    """Whether this problem's tiles are to be counted at once."""
    return problem.value.device.type == "meta" and _AT_ONCE.get()


def count_tiles(problem: AttentionProblem, tile: Tile, *, width: int) -> None:
    """One product that costs what the tiles' products do.

    Args:
        problem: whose scores are cut into tiles.
        tile: the cut.
        width: summed inner widths of the products that a tile's scores take part in.
    """
    p = problem
    seen = ((rows.stop - rows.start, p.keys_seen(rows)) for rows in spans(p.query, tile.rows))
    entries = p.group * sum(height * (keys.stop - keys.start) for height, keys in seen)
    one, slabs = p.value.new_empty(1, 1, 1), p.batch * p.kv_heads
    torch.bmm(one.expand(slabs, 1, entries * width), one.expand(slabs, entries * width, 1))
