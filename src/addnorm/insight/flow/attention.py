"""Attention rows: their entropy, and their similarity from one attention to the next.

Probabilities are the model's own attention, applied to columns of the identity matrix, so every normalisation of scores is
measured as it is. One block of columns is computed at a time, so memory is linear in the length.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from addnorm.kernels.grouped_attention import num_visible
from addnorm.model.trace import AttentionTrace

ONE_HOT = 0.9
"""A row with more than this share of its attention at one position counts as one-hot."""
COLUMNS = 256
"""Number of key positions per block."""

Block = Float[Tensor, "batch heads query keys"]
Rows = Float64[Tensor, "batch heads query"]


@dataclass
class RowTally:
    """Sums of a row measure over rows, per head."""

    total: Float64[Tensor, " heads"] | None = None
    rows: int = 0

    def add(self, values: Rows, where: Int64[Tensor, " rows"]) -> None:
        """Add the chosen rows of every sequence."""
        chosen = values[:, :, where]
        summed = chosen.sum(dim=(0, 2))
        self.total = summed if self.total is None else self.total + summed
        self.rows += chosen.shape[0] * chosen.shape[2]

    @property
    def means(self) -> list[float]:
        """Mean over rows, per head; empty without rows."""
        return [] if self.total is None or not self.rows else (self.total / self.rows).tolist()


@dataclass
class AttentionTally:
    """Sums over passes, one entry per attention."""

    measures: list[dict[str, RowTally]] = field(default_factory=list)
    """Per attention and measure; sums per head."""
    mean_similarity: list[RowTally] = field(default_factory=list)
    """Similarity of the attention averaged over heads."""

    @torch.no_grad()
    def add(self, attentions: Sequence[AttentionTrace]) -> None:
        """Add one pass."""
        if not self.measures:
            self.measures = [{} for _ in attentions]
            self.mean_similarity = [RowTally() for _ in attentions]
        spreads = [_Spread() for _ in attentions]
        for columns in _blocks(attentions):
            for spread, attention in zip(spreads, attentions, strict=True):
                spread.add(_probabilities(attention, columns))
        for place, (spread, attention) in enumerate(zip(spreads, attentions, strict=True)):
            visible = _visible(attention)
            where = torch.nonzero(visible > 1).flatten()
            entropy = spread.entropy
            self._tally(place, "entropy", entropy, where)
            self._tally(place, "entropy_share", entropy / visible.log(), where)
            if spread.first is not None:
                self._tally(place, "first_share", spread.first / spread.mass, where)
            self._tally(place, "one_hot", (spread.largest / spread.mass > ONE_HOT).double(), where)
        self._compare(attentions, [spread.mass for spread in spreads])

    def _compare(self, attentions: Sequence[AttentionTrace], masses: Sequence[Rows]) -> None:
        """The similarity of each attention to the one before it."""
        pairs = range(1, len(attentions))
        divergence, of_means = [[_Divergence() for _ in attentions] for _ in range(2)]
        for columns in _blocks(attentions):
            before: Block | None = None
            for place, (attention, mass) in enumerate(zip(attentions, masses, strict=True)):
                now = _probabilities(attention, columns).double() / mass[..., None]
                if before is not None:
                    if before.shape == now.shape:
                        divergence[place].add(before, now)
                    of_means[place].add(before.mean(1, keepdim=True), now.mean(1, keepdim=True))
                before = now
        for place in pairs:
            where = torch.nonzero(_visible(attentions[place]) > 1).flatten()
            if divergence[place].total is not None:
                self._tally(place, "similarity", divergence[place].similarity, where)
            self.mean_similarity[place].add(of_means[place].similarity, where)

    def _tally(self, place: int, name: str, values: Rows, where: Tensor) -> None:
        self.measures[place].setdefault(name, RowTally()).add(values, where)


class _Spread:
    """Sums for the entropy and the largest probability of a row, block by block."""

    def __init__(self) -> None:
        self.mass = self.weighted_log = self.largest = torch.zeros((), dtype=torch.float64)
        self.first: Tensor | None = None

    def add(self, block: Block) -> None:
        block = block.double()
        self.first = block[..., 0] if self.first is None else self.first
        self.mass = self.mass + block.sum(-1)
        self.weighted_log = self.weighted_log + torch.special.xlogy(block, block).sum(-1)
        self.largest = torch.maximum(self.largest.to(block.device), block.amax(-1))

    @property
    def entropy(self) -> Rows:
        """Entropy of the row divided by its sum: log Z - (Σ p log p) / Z."""
        return self.mass.log() - self.weighted_log / self.mass


class _Divergence:
    """Jensen-Shannon divergence of two rows, block by block."""

    def __init__(self) -> None:
        self.total: Tensor | None = None

    def add(self, one: Block, other: Block) -> None:
        mid = (one + other) / 2
        parts = torch.special.xlogy(one, one) + torch.special.xlogy(other, other)
        divergence = (parts / 2 - torch.special.xlogy(mid, mid)).sum(-1)
        self.total = divergence if self.total is None else self.total + divergence

    @property
    def similarity(self) -> Rows:
        if self.total is None:
            raise ValueError("similarity: expected at least one pair of blocks, got none")
        return 1 - self.total / math.log(2)


def _blocks(attentions: Sequence[AttentionTrace]) -> Iterator[slice]:
    length = attentions[0].problem.key if attentions else 0
    return (slice(first, min(first + COLUMNS, length)) for first in range(0, length, COLUMNS))


def _probabilities(attention: AttentionTrace, columns: slice) -> Block:
    """The attention's probabilities at some key positions."""
    p, count = attention.problem, columns.stop - columns.start
    dtype, device = p.value.dtype, p.value.device
    identity = torch.zeros(p.key, count, dtype=dtype, device=device)
    identity[columns] = torch.eye(count, dtype=dtype, device=device)
    return attention.apply(identity.expand(p.batch, p.kv_heads, *identity.shape))


def _visible(attention: AttentionTrace) -> Float64[Tensor, " query"]:
    """Number of positions that each row sees."""
    return num_visible(attention.problem).double()
