"""Size of the tiles into which a problem is divided, so that the scores of one tile fit into the cache.

A tile is (batch items) × (key heads) × (query rows), each query row of a tile with its whole group of query heads and
every key. Its score buffer has items · heads · group · rows · key entries and is reused by all tiles of a call.

The rule, for a budget of entries:

1. Rows: 128 of one item and one key head, 256 where the terms are wide together; fewer if the budget is less, but at
   least 64 (rows of the matrix product, so all are divided by the group). More rows would not make the product faster,
   and of causal rows more would be multiplied with keys that they do not see, half a tile's rows each.
2. Then as many key heads of one item as the budget allows, and if all of them fit, as many items as fit.

Memory is thus max(budget, 64 · key) entries. The CPU's budget is the second-level cache of two cores, 2 MiB of float32,
or such a tile for each thread where that is more: linear in the length. Measured on two AVX-512 cores, forward and
backward: with 2¹⁶ entries, starting operations takes up to half of the time for short sequences; from 2¹⁸ to 2²¹
the differences are within the noise, as long as each thread has a product of its own: two threads that share one of 128
rows, 512 entries and 4096 keys do 80 to 120 GFLOP/s, with a head each 155, with a head each of 256 rows 166.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.problem import AttentionProblem

CPU_BUDGET = 2**19
"""Score entries of one tile on a CPU, and on the meta device, where only operations are counted."""
ACCELERATOR_BUDGET = 2**24
"""Score entries of one tile elsewhere: large enough that starting a kernel costs little beside running it."""
LEAST_ROWS = 64
"""Rows of the smallest efficient matrix product."""
USUAL_ROWS, MOST_ROWS = 128, 256
"""Rows from which a larger matrix product is not faster, for narrow and for wide factors."""
WIDE = 256
"""Summed width of the terms from which MOST_ROWS are taken: 3 to 10 % faster at 4096 and 8192 keys, as fast at 1024."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Largest extent of one tile along each axis; tiles at the edges are smaller."""

    batch: int
    kv_heads: int
    rows: int
    keys: int
    """Keys that the rows of one tile may see together."""

    @property
    def slabs(self) -> int:
        return self.batch * self.kv_heads


def tile_of(problem: AttentionProblem, budget: int | None = None, *, most_rows: int | None = None) -> Tile:
    """Apply the rule above; `budget` replaces the number of entries of the device, `most_rows` the rows of a tile."""
    keys = problem.key if problem.sliding_window is None else min(problem.key, problem.sliding_window + MOST_ROWS - 1)
    row = problem.group * keys
    if most_rows is None:
        most_rows = MOST_ROWS if len(problem.queries) * problem.head_dim >= WIDE else USUAL_ROWS
    least, most = (-(-rows // problem.group) for rows in (LEAST_ROWS, most_rows))
    if budget is None:
        budget = max(budget_of(problem.value), products_at_once(problem) * row * most)
    rows = min(problem.query, max(least, min(most, budget // row)))
    slabs = max(1, budget // (row * rows))
    if slabs < problem.kv_heads:
        return Tile(batch=1, kv_heads=slabs, rows=rows, keys=keys)
    return Tile(batch=min(problem.batch, slabs // problem.kv_heads), kv_heads=problem.kv_heads, rows=rows, keys=keys)


def products_at_once(problem: AttentionProblem) -> int:
    """Number of products to compute at a time: one per thread; bfloat16 products use all threads together."""
    shared = problem.tile_dtype == torch.bfloat16 or problem.value.device.type not in ("cpu", "meta")
    return 1 if shared else _threads()


def _threads() -> int:
    """Separate, because Dynamo cannot trace the call."""
    return torch.get_num_threads()


# torch.compiler.assume_constant_result sets this attribute and does nothing else, but imports Dynamo to do so: 1.4 seconds
# in each process that uses the library, compiled or not.
_threads._dynamo_marked_constant = True  # type: ignore[attr-defined]


def budget_of(tensor: Tensor) -> int:
    """Score entries of one tile on the tensor's device."""
    return CPU_BUDGET if tensor.device.type in ("cpu", "meta") else ACCELERATOR_BUDGET


def spans(total: int, step: int) -> list[slice]:
    """Consecutive slices of at most `step` that cover range(total)."""
    return [slice(start, min(start + step, total)) for start in range(0, total, step)]
