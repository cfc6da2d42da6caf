"""The settings at which every kernel is launched: tiles, warps and pipeline stages, by head width and type.

One table, which launches and tests read alike: `make gpu-check` compiles every kernel at every row for every card, and fails
where a program takes more shared memory than the card has, or spills registers to memory.

Chosen by compilation alone; nothing here was timed on a card. Every row fits the smallest card served, so that there is one
table for all. Of the settings that fit and hardly spill those with the largest tiles were taken, because a tile's factors are
read once per tile. With two stages the next tile's factors come while the first's are multiplied, for their size in shared
memory; where two stages spill there is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

SMALL_CARD = 99 * 1024
"""Bytes of shared memory of one program on compute capability 8.6, 8.9 and 12.0 (RTX 30 to 50, A10, L4, L40S)."""
WIDTHS = (32, 64, 128, 256)
"""A head width takes the row of the first of these that is not smaller."""


@dataclass(frozen=True)
class Launch:
    """Settings of one kernel's launch."""

    rows: int
    """Query rows of a tile."""
    keys: int
    """Keys of a tile."""
    warps: int
    """Groups of 32 threads."""
    stages: int
    """Tiles whose factors are in shared memory at a time."""

    def arguments(self) -> dict[str, int]:
        """Keyword arguments of the launch."""
        return {
            "BLOCK_ROWS": self.rows,
            "BLOCK_KEYS": self.keys,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


NARROW: Mapping[str, tuple[Launch, ...]] = {
    "attend_rows": (Launch(128, 64, 8, 2), Launch(128, 64, 8, 2), Launch(64, 64, 8, 1), Launch(64, 64, 8, 1)),
    "differentiate_rows": (Launch(128, 32, 8, 2), Launch(128, 64, 8, 2), Launch(64, 64, 8, 1), Launch(32, 32, 8, 1)),
    "differentiate_keys": (Launch(32, 32, 8, 2), Launch(64, 32, 8, 2), Launch(64, 32, 8, 2), Launch(32, 32, 8, 1)),
    "sum_terms": (Launch(64, 64, 8, 2), Launch(64, 64, 8, 2), Launch(64, 64, 8, 1), Launch(64, 32, 8, 1)),
    "attend_sum": (Launch(64, 64, 8, 2), Launch(64, 64, 8, 2), Launch(64, 64, 8, 1), Launch(64, 32, 8, 1)),
    "differentiate_sum_rows": (Launch(64, 32, 8, 1), Launch(64, 32, 8, 1), Launch(64, 64, 8, 1), Launch(64, 32, 8, 1)),
    "differentiate_sum_keys": (Launch(64, 32, 8, 1), Launch(64, 32, 8, 1), Launch(64, 32, 8, 1), Launch(64, 16, 16, 1)),
}
"""Of bfloat16 and float16, for each of `WIDTHS`. The kernels of a sum share their rows, by which its buffer is laid out."""
WIDE: Mapping[str, tuple[Launch, ...]] = {
    "attend_rows": (Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 16, 8, 1)),
    "differentiate_rows": (Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 16, 8, 1)),
    "differentiate_keys": (Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 16, 8, 1)),
    "sum_terms": (Launch(32, 16, 8, 1), Launch(32, 16, 8, 1)),
    "attend_sum": (Launch(32, 16, 8, 1), Launch(32, 16, 8, 1)),
    "differentiate_sum_rows": (Launch(32, 16, 8, 1), Launch(32, 16, 8, 1)),
    "differentiate_sum_keys": (Launch(32, 16, 16, 1), Launch(32, 16, 16, 1)),
}
"""Of float32, for each of `WIDTHS` that a kernel takes: at more, a running sum's would spill kilobytes of every thread. No tile
has 64 rows: those Triton 3.7 multiplies by TF32 tensor cores on compute capability 10.0, though it is told not to."""


_KEYS_WITH_BIAS = {"differentiate_rows": 32}
"""Most keys of a tile of scores with a bias: with 64, the numbers of a matrix do not fit the registers of capability 12.0."""


def launch_of(kernel: str, q: Tensor, v: Tensor, num_rows: int, num_keys: int, *, biased: bool = False) -> Launch:
    """Settings of a kernel's launch for queries and values of these widths; tiles are no longer than the sequence."""
    usual = usual_launch(kernel, max(q.shape[-1], v.shape[-1]), q.dtype, biased=biased)
    return Launch(min(usual.rows, _block(num_rows)), min(usual.keys, _block(num_keys)), usual.warps, usual.stages)


def usual_launch(kernel: str, width: int, dtype: torch.dtype, *, biased: bool = False) -> Launch:
    """The table's row for a head width and a type; of scores with a bias, with one stage and no more keys than fit."""
    rows = (WIDE if dtype == torch.float32 else NARROW)[kernel]
    row = next(row for most, row in zip(WIDTHS, rows, strict=False) if width <= most)
    return replace(row, stages=1, keys=min(row.keys, _KEYS_WITH_BIAS.get(kernel, row.keys))) if biased else row


def widest(kernel: str, dtype: torch.dtype) -> int:
    """The largest head width that a kernel takes."""
    return WIDTHS[len((WIDE if dtype == torch.float32 else NARROW)[kernel]) - 1]


def _block(length: int) -> int:
    """The smallest block of a product that covers a length, a power of two."""
    return max(16, 1 << (length - 1).bit_length())
