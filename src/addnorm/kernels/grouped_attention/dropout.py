r"""Dropout of attention probabilities as a function of (seed, batch, head, row, column) alone.

Every implementation and every block size therefore drops the same probabilities, and the backward pass computes the mask
again instead of storing it. An entry is kept when a 32-bit hash of its place is at least dropout · 2³²:

    a      = mix(mix(mix(mix(low(seed)) ^ high(seed)) + batch) + head)          one word per head
    k, k'  = mix(a + row), mix(k ^ 0x68E31DA4)                                  two words per row
    x      = k + 0x9E3779B9 · column
    x      = (x ^ x >> 16) · 0x7FEB352D;  x = x ^ x >> 15 ^ k';  x = x · 0x846CA68B;  hash = x ^ x >> 16

mix is the same finaliser without the key. Arithmetic is modulo 2³², held in int64, so that 32-bit unsigned integers
give the same words. Two words per row: with one word, two of 2¹⁶ rows would be likely to share a mask.

Source: the finaliser `lowbias32` of Chris Wellons, https://nullprogram.com/blog/2018/07/31/.
Differs from the source: a second key word enters between the two multiplications.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


def keep(
    seed: Tensor, batch: Tensor | int, head: Tensor | int, row: Tensor | int, column: Tensor | int, *, dropout: float
) -> Tensor:
    """Return True where the probability is kept; the shape is that of the indices broadcast together."""
    word = _mix(_mix(seed & _WORD) ^ ((seed >> 32) & _WORD))
    word = _mix((_mix((word + batch) & _WORD) + head) & _WORD)
    first = _mix((word + row) & _WORD)
    second = _mix(first ^ 0x68E31DA4)
    hashed = _mix((first + column * 0x9E3779B9) & _WORD, second)
    return hashed >= round(dropout * 2**32)


def block(seed: Tensor, *, batch: slice, heads: slice, rows: slice, columns: slice, dropout: float) -> Tensor:
    """Return the mask of one block, Bool[Tensor, "batch heads rows columns"]; True where the probability is kept."""

    def span(places: slice, axis: int) -> Tensor:
        index = torch.arange(places.start, places.stop, device=seed.device)
        return index.view([-1 if i == axis else 1 for i in range(4)])

    return keep(seed, span(batch, 0), span(heads, 1), span(rows, 2), span(columns, 3), dropout=dropout)


def _mix(word: Tensor, key: Tensor | int = 0) -> Tensor:
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & _WORD
    word = ((word ^ (word >> 15) ^ key) * 0x846CA68B) & _WORD
    return word ^ (word >> 16)
