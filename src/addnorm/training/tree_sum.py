"""Sum over shards as a balanced binary tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).

Floating-point addition is not associative, so a sum's bits depend on its order. In a balanced tree, the sum of an aligned block
of 2^k shards is one node. Ranks that each compute such a block, and then add neighbouring blocks, therefore build the same tree
as one rank that computes all shards.

A stack holds one partial sum per height. A new term merges with the top while both have the same height, as a binary counter
carries, so that at most log2(shards) + 1 terms are in memory.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

ShardTerms = list[Tensor | None]
"""Contribution of one shard: tensors in a fixed order; None for a gradient that does not exist."""


class TreeSum:
    """A sum of terms in the order of a balanced binary tree. The tensors that are added are overwritten."""

    def __init__(self) -> None:
        self._partial: list[tuple[int, ShardTerms]] = []

    def add(self, terms: ShardTerms) -> None:
        """Add the terms of the next shard."""
        # A new term is a tree of height 0 and merges as a binary counter carries. After n terms the heights on the
        # stack are the ones in the binary form of n, the tallest at the bottom. The earlier operand is therefore always
        # the left one, and the order of all additions depends on n alone, not on when the terms came.
        height = 0
        while self._partial and self._partial[-1][0] == height:
            _, earlier = self._partial.pop()
            terms = _added(earlier, terms)
            height += 1
        self._partial.append((height, terms))

    def total(self) -> ShardTerms:
        """The sum; the number of shards was a power of two."""
        # One tree is left only after a power of two of terms. For any other number the unpacking fails, where a sum of
        # what is left would have another order on another number of ranks.
        ((_, terms),) = self._partial
        return terms


def _added(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> ShardTerms:
    pairs = list(zip(left, right, strict=True))
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    if both:
        # In place on the left operand, so that no gradient is held a third time. The caller has given its tensors away:
        # they are no parameter's `.grad` any more.
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
    # None is not zero. An optimizer skips a parameter without a gradient; one with a gradient of zeros it moves, by
    # momentum and by weight decay.
    return [a if a is not None else b for a, b in pairs]
