"""How a problem is cut so that the scores at hand stay near the cache.

A tile is (batch items) × (key heads) × (query rows), each query row of a tile with its whole group of query heads and
every key. Its score buffer has items · heads · group · rows · key entries and is reused by all tiles of a call.

The rule, for a budget of entries:

1. Rows: 128 of one item and one key head, fewer if the budget is less, but at least 64 (rows of the matrix product, so
   both are divided by the group). More would not make the product faster, and causal rows would meet keys in vain.
2. Then as many key heads of one item as the budget allows, and if all of those fit, as many items as fit.

Memory is thus max(budget, 64 · key) entries: linear in the length. The CPU's budget is the second-level cache of two
cores, 2 MiB of float32. Measured there (two AVX-512 cores, forward and backward): 2¹⁶ entries lose up to half the speed
of short sequences to the cost of starting operations; from 2¹⁸ to 2²¹ the differences are within the noise.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.kernels.grouped_attention.problem import Problem

CPU_BUDGET = 2**19
"""Score entries of one tile on a CPU, and on the meta device, where only operations are counted."""
ACCELERATOR_BUDGET = 2**24
"""Score entries of one tile elsewhere: large enough that starting a kernel costs little beside running it."""
LEAST_ROWS = 64
"""Rows of the smallest matrix product worth starting."""
MOST_ROWS = 128
"""Rows from which a larger matrix product is not faster."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Largest extent of one tile along each axis; tiles at the edges are smaller."""

    batch: int
    kv_heads: int
    rows: int


def tile_of(problem: Problem, budget: int | None = None) -> Tile:
    """The tile that the rule above gives; `budget` replaces the device's number of entries."""
    if budget is None:
        budget = budget_of(problem.value)
    row = problem.group * problem.key
    least, most = (-(-rows // problem.group) for rows in (LEAST_ROWS, MOST_ROWS))
    rows = min(problem.query, max(least, min(most, budget // row)))
    slabs = max(1, budget // (row * rows))
    if slabs < problem.kv_heads:
        return Tile(batch=1, kv_heads=slabs, rows=rows)
    return Tile(batch=min(problem.batch, slabs // problem.kv_heads), kv_heads=problem.kv_heads, rows=rows)


def budget_of(tensor: Tensor) -> int:
    """Score entries of one tile on the tensor's device."""
    return CPU_BUDGET if tensor.device.type in ("cpu", "meta") else ACCELERATOR_BUDGET


def spans(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
