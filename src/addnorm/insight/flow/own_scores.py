"""Shares of the joining layers in the variance of a layer's summed scores, over passes: see `addnorm.insight.score_shares`.

Why: readers of Su (2020) found layers whose own Q K^T was nearly zero, so that the first layer's scores determined them.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.insight.score_shares import shares_of, variation
from addnorm.kernels.grouped_attention import AttentionProblem, band
from addnorm.model.trace import AttentionTrace

ROWS = 128
"""Number of query positions per block."""


class ScoreTally:
    """Sums over passes, one entry per attention; None for an attention with a single term."""

    def __init__(self) -> None:
        self.covariances: list[Float64[Tensor, "heads terms"] | None] = []

    @torch.no_grad()
    def add(self, attentions: Sequence[AttentionTrace]) -> None:
        """Add one pass."""
        problems = [attention.problem for attention in attentions]
        found = [covariances(problem) if len(problem.queries) > 1 else None for problem in problems]
        if not self.covariances:
            self.covariances = found
            return
        for place, new in enumerate(found):
            before = self.covariances[place]
            if new is not None and before is not None:
                self.covariances[place] = before + new

    def shares(self, place: int) -> Float64[Tensor, "heads terms"] | None:
        """Return share_i per head, earliest term first; None for a single term."""
        found = self.covariances[place]
        return None if found is None else shares_of(found)


def covariances(problem: AttentionProblem) -> Float64[Tensor, "heads terms"]:
    """Find `variation` of the terms of one attention, a block of rows at a time."""
    p, num_terms = problem, len(problem.queries)
    weights = p.weights[0] if isinstance(p.weights, Tensor) else torch.tensor(p.weights, dtype=torch.float64)
    weights = weights.to(p.value.device, torch.float64).expand(p.heads, num_terms)
    weights = weights.T[:, None, :, None, None]  # [terms, 1, heads, 1, 1]
    keys = torch.stack([key.double().repeat_interleave(p.group, dim=1) for key in p.keys])
    total = torch.zeros(p.heads, num_terms, dtype=torch.float64, device=keys.device)
    for first in range(0, p.query, ROWS):
        rows = slice(first, min(first + ROWS, p.query))
        queries = torch.stack([query[:, :, rows].double() for query in p.queries])
        terms = queries @ keys.mT * weights  # [terms, batch, heads, rows, key]
        total += variation(terms, band(p, rows, slice(0, p.key)))
    return total
