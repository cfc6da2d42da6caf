"""Operation counts of streaming attention, for `torch.utils.flop_counter.FlopCounterMode`.

The counter covers the batched product only out of place. It would miss most of the tiles' work, because scores and the
gradients of keys and values are accumulated in place, to avoid holding a product beside its sum. Iterating over the tiles on
the meta device would take minutes for a model of published size; inside `counting_at_once` they are one product of the same
cost.
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
    """Register the in-place product with the counter, unless it is registered already."""
    if torch.ops.aten.baddbmm_ not in flop_registry:
        register_flop_formula(torch.ops.aten.baddbmm_)(_baddbmm_in_place_flop)


def _baddbmm_in_place_flop(total: Any, first: Any, second: Any, **_: Any) -> int:
    """Count the operations of total += first @ second from the shapes."""
    return int(baddbmm_flop(total, first, second))


_AT_ONCE = ContextVar("at_once", default=False)


@contextmanager
def counting_at_once() -> Iterator[None]:
    """Make attention on the meta device count the work of its tiles as one product instead of iterating over them.

    Single operations and the memory of single tiles are then not visible.

    Example::

        with counting_at_once(), FlopCounterMode(display=False) as counter:
            model(tokens)  # model and tokens on the meta device
    """
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def at_once(problem: AttentionProblem) -> bool:
    """Return True if the tiles of this problem are counted as one product."""
    return problem.value.device.type == "meta" and _AT_ONCE.get()


def count_tiles(problem: AttentionProblem, tile: Tile, *, width: int) -> None:
    """Run one product of the same cost as the products of all tiles.

    Args:
        problem: the problem.
        tile: size of its tiles.
        width: summed inner widths of the products that a tile's scores take part in.
    """
    p = problem
    seen = ((rows.stop - rows.start, p.keys_seen(rows)) for rows in spans(p.query, tile.rows))
    entries = p.group * sum(height * (keys.stop - keys.start) for height, keys in seen)
    one, slabs = p.value.new_empty(1, 1, 1), p.batch * p.kv_heads
    torch.bmm(one.expand(slabs, 1, entries * width), one.expand(slabs, entries * width, 1))
