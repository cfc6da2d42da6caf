"""Attention rows: their entropy, and their similarity from one attention to the next, of any model.

A row holds the weights with which one position reads the values of all positions. Measures are those of a row divided by its
sum: with a sink, which is no position, or with another normalisation the weights add up to less than one, and what is measured
is how the row spreads over the positions that it reads. A row that reads nothing, or sees one position alone, is left out.

One block of columns is computed at a time, so that memory is linear in the length.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from addnorm.insight.flow.recording import AttentionRows, Block, LayerAttention, Reason
from addnorm.insight.score_shares import covariances, shares_of
from addnorm.words import Sentence, say

ONE_HOT = 0.9
"""A row with more than this share of its attention at one position counts as one-hot."""
COLUMNS = 256
"""Number of key positions per block."""

Rows = Float64[Tensor, "batch heads query"]


@dataclass
class RowTally:
    """Sums of a row measure over rows, per head."""

    total: Float64[Tensor, " heads"] | None = None
    rows: Int64[Tensor, " heads"] | None = None

    def add(self, values: Rows, where: Bool[Tensor, "batch heads query"]) -> None:
        """Add the chosen rows of every sequence."""
        total, rows = torch.where(where, values, 0.0).sum(dim=(0, 2)), where.sum(dim=(0, 2))
        self.total = total if self.total is None else self.total + total
        self.rows = rows if self.rows is None else self.rows + rows

    @property
    def means(self) -> list[float | None]:
        """Mean over rows, per head: None for a head without rows; empty without rows."""
        if self.total is None or self.rows is None or not bool(self.rows.any()):
            return []
        return [
            total / rows if rows else None for total, rows in zip(self.total.tolist(), self.rows.tolist(), strict=True)
        ]


class AttentionTally:
    """Sums over passes, by the place of an attention in a recording."""

    def __init__(self) -> None:
        self.measures: dict[int, dict[str, RowTally]] = defaultdict(lambda: defaultdict(RowTally))
        """Sums per head."""
        self.mean_similarity: dict[int, RowTally] = defaultdict(RowTally)
        """Similarity of the attention averaged over heads."""
        self.directions: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        """One number per pass."""
        self.score_variations: dict[int, Float64[Tensor, "heads terms"]] = {}
        """Variation of the terms of summed scores."""
        self.sites: dict[int, tuple[int, int | None]] = {}
        """Layer and `order` of the site that attends."""
        self.reasons: dict[int, Reason] = {}
        """Of the attentions without weights on positions in some pass."""

    @torch.no_grad()
    def add(self, recorded: Sequence[LayerAttention]) -> None:
        """Add one pass: its attentions in order of depth."""
        attentions: dict[int, AttentionRows] = {}
        for place, each in enumerate(recorded):
            rows = each.rows()
            if isinstance(rows, str):
                self.reasons.setdefault(place, rows)
            else:
                attentions[place] = rows
            if each.order is not None or place not in self.sites:
                self.sites[place] = each.layer, each.order
        length = max((attention.keys for attention in attentions.values()), default=0)
        spreads = {place: _Spread() for place in attentions}
        for columns in blocks(length):
            for place, attention in attentions.items():
                spreads[place].add(attention.block(columns))
        for place, attention in attentions.items():
            spread, measures = spreads[place], self.measures[place]
            # A row that sees one position has no choice and the entropy zero; the first row of every causal window
            # would pull all means down.
            where = _several(attention) & (spread.mass > 0)
            measures["entropy"].add(spread.entropy, where)
            measures["entropy_share"].add(spread.entropy / attention.visible.double().log(), where)
            if spread.first is not None:
                measures["first_share"].add(spread.first / spread.mass, where)
            measures["one_hot"].add((spread.largest / spread.mass > ONE_HOT).double(), where)
            for name, vectors in (("query_direction", attention.query), ("key_direction", attention.key)):
                if vectors is not None:
                    self.directions[place][name].append(mean_direction(vectors).mean().item())
            if attention.summed is not None:
                variations, before = covariances(attention.summed), self.score_variations.get(place)
                self.score_variations[place] = variations if before is None else before + variations
        self._compare(attentions, {place: spread.mass for place, spread in spreads.items()}, length)

    def _compare(self, attentions: Mapping[int, AttentionRows], masses: Mapping[int, Rows], length: int) -> None:
        """The similarity of each attention to the one before it."""
        # Attention is computed a second time, a block of columns after the other. To keep it from the first time would
        # take seq² numbers per head of every layer.
        divergence, of_means = ({place: _Divergence() for place in attentions} for _ in range(2))
        for columns in blocks(length):
            before: Block | None = None
            for place, attention in attentions.items():
                now = attention.block(columns).double() / masses[place][..., None]
                if before is not None:
                    if before.shape == now.shape:
                        divergence[place].add(before, now)
                    of_means[place].add(before.nanmean(1, keepdim=True), now.nanmean(1, keepdim=True))
                before = now
        for earlier, place in pairwise(attentions):
            read, read_before = (masses[place] > 0) & _several(attentions[place]), masses[earlier] > 0
            if divergence[place].total is not None:
                self.measures[place]["similarity"].add(divergence[place].similarity, read & read_before)
            # A head that reads nothing is not part of the average over heads.
            some = (read.any(1) & read_before.any(1))[:, None]
            self.mean_similarity[place].add(of_means[place].similarity, some)

    def of(self, place: int) -> dict[str, Any]:
        """The measures of an attention, means over heads, and `heads`, those of each."""
        per_head = {name: tally.means for name, tally in self.measures[place].items() if tally.means}
        shares = shares_of(self.score_variations[place]) if place in self.score_variations else None
        if shares is not None:
            per_head["own_share"] = shares[:, -1].tolist()
        known = {name: [value for value in values if value is not None] for name, values in per_head.items()}
        measures: dict[str, Any] = {name: sum(values) / len(values) for name, values in known.items()}
        if self.mean_similarity[place].means:
            measures["mean_similarity"] = self.mean_similarity[place].means[0]
        measures |= {name: sum(of_passes) / len(of_passes) for name, of_passes in self.directions[place].items()}
        heads = range(max(map(len, per_head.values()), default=0))
        measures["heads"] = [
            {"head": head} | {name: values[head] for name, values in per_head.items() if values[head] is not None}
            for head in heads
        ]
        return measures | ({} if shares is None else {"score_shares": shares.mean(0).tolist()})

    @property
    def measured(self) -> list[int]:
        """Places of the attentions with weights on positions in every pass."""
        return [place for place in sorted(self.measures) if place not in self.reasons]

    def missing(self) -> dict[str, Sentence]:
        """The layers without measures, by reason."""
        by_reason: dict[str, list[int]] = defaultdict(list)
        for place, reason in sorted(self.reasons.items()):
            by_reason[reason].append(self.sites[place][0])
        by_reason["no_directions"] = [self.sites[place][0] for place in self.measured if not self.directions[place]]
        return {
            reason: say(reason, layers=", ".join(map(str, layers))) for reason, layers in by_reason.items() if layers
        }


def _several(attention: AttentionRows) -> Bool[Tensor, "#batch #heads query"]:
    """True for rows that see two positions or more."""
    return attention.visible > 1


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


def blocks(length: int) -> Iterator[slice]:
    """Columns that are computed together, one block after another."""
    return (slice(first, min(first + COLUMNS, length)) for first in range(0, length, COLUMNS))


def mean_direction(vectors: Float[Tensor, "sample heads seq head_dim"]) -> Float64[Tensor, " heads"]:
    """Compute the norm of the mean direction, per head: 0 if vectors are isotropic, 1 if all have one direction.

    Vectors of zero length count as zero.
    """
    vectors = vectors.double()
    lengths = vectors.norm(dim=-1, keepdim=True)
    return torch.where(lengths > 0, vectors / lengths.clamp(min=1e-300), 0.0).mean(dim=(0, 2)).norm(dim=-1)
