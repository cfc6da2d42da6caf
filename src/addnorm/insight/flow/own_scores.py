r"""Whose scores a layer lives on: the part of its summed scores that each joining layer's Q K^T makes.

    T_i = s_{m,i} Q_i K_i^T,        S = sum_i T_i,        share_i = sum_rows cov(T_i, S) / sum_rows var(S)

Covariance and variance are taken along a row, over its visible positions, because a softmax does not see what is the same
for a whole row. The shares of a layer add up to one; a term that works against the sum has a negative one.

Why: Su's (2020) readers found layers whose own Q K^T had become nothing, so that they lived on the first layer's scores.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.kernels.grouped_attention import AttentionProblem, band
from addnorm.model.trace import AttentionTrace

ROWS = 128
"""Query positions looked at together."""


class ScoreTally:
    """Sums over the passes seen, one entry per attention; None for an attention with a single term."""

    def __init__(self) -> None:
        self.covariances: list[Float64[Tensor, "heads terms"] | None] = []

    @torch.no_grad()
    def add(self, attentions: Sequence[AttentionTrace]) -> None:
        """Take in one pass."""
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
        """share_i per head, earliest term first; None where there is a single term."""
        found = self.covariances[place]
        return None if found is None else found / found.sum(-1, keepdim=True)


def covariances(problem: AttentionProblem) -> Float64[Tensor, "heads terms"]:
    """Σ over rows of Σ over visible positions of (T_i - mean T_i)(S - mean S), per head; their sum over i is S's own."""
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
        seen = band(p, rows, slice(0, p.key))
        if seen is None:
            seen = torch.ones(terms.shape[-2:], dtype=torch.bool, device=keys.device)
        terms = terms * seen
        mean = terms.sum(-1, keepdim=True) / seen.sum(-1)[:, None]
        terms = (terms - mean) * seen
        total += torch.einsum("tbhqk,bhqk->ht", terms, terms.sum(0))
    return total
