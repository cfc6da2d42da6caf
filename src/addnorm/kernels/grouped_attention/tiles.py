"""How a problem is cut so that the scores at hand stay near the cache.

A tile is (batch items) × (key heads) × (query rows), each query row of a tile with its whole group of query heads and
every key. Its score buffer has items · heads · group · rows · key entries and is reused by all tiles of a call.

The rule, for a budget of entries (one core's second-level cache on a CPU, 1 MiB of float32):

1. Rows: as many as the budget allows for one item and one key head, at least 64 / group (below that the matrix product
   waits for memory), at most all.
2. If all rows fit: as many key heads of one item as fit, and if all of those fit, as many items as fit.

Memory is thus max(budget, 64 · key) entries: linear in the length. Measured on two AVX-512 cores, a tile of 2¹⁸ entries
reaches 90 % of the best matrix-product rate at head_dim 64; 2²⁰ and more lose the softmax to main memory.
"""

from dataclasses import dataclass

from addnorm.kernels.grouped_attention.problem import Problem

CPU_BUDGET = 2**18
"""Score entries of one tile on a CPU, and on the meta device, where only operations are counted."""
ACCELERATOR_BUDGET = 2**24
"""Score entries of one tile elsewhere: large enough that starting a kernel costs little beside running it."""
LEAST_ROWS = 64
"""Rows of the smallest matrix product worth starting."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Largest extent of one tile along each axis; tiles at the edges are smaller."""

    batch: int
    kv_heads: int
    rows: int


def tile_of(problem: Problem, budget: int | None = None) -> Tile:
    """The tile that the rule above gives; `budget` replaces the device's number of entries."""
    if budget is None:
        budget = CPU_BUDGET if problem.value.device.type in ("cpu", "meta") else ACCELERATOR_BUDGET
    row = max(1, problem.group * problem.key)
    least = -(-LEAST_ROWS // problem.group)
    rows = max(1, min(problem.query, max(least, budget // row)))
    if rows < problem.query:
        return Tile(batch=1, kv_heads=1, rows=rows)
    slabs = max(1, budget // (row * rows))
    if slabs < problem.kv_heads:
        return Tile(batch=1, kv_heads=slabs, rows=rows)
    return Tile(batch=max(1, min(problem.batch, slabs // problem.kv_heads)), kv_heads=problem.kv_heads, rows=rows)


def spans(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
