r"""Shares of the joining layers in the variance of a layer's summed scores.

    T_i = s_{m,i} Q_i K_i^T,        S = sum_i T_i,        share_i = sum_rows cov(T_i, S) / sum_rows var(S)

Covariance and variance are taken along a row, over its visible positions, because a constant along a row does not change a
softmax. The shares of a layer add up to one; a term that works against the sum has a negative share.

Why: readers of Su (2020) found layers whose own Q K^T was nearly zero, so that the first layer's scores determined them.
"""

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from addnorm.kernels.grouped_attention import AttentionProblem, band

ROWS = 128
"""Number of query positions per block."""


def variation(
    terms: Float64[Tensor, "terms batch heads query key"], seen: Bool[Tensor, "query key"] | None
) -> Float64[Tensor, "heads terms"]:
    """Sum (T_i - mean T_i)(S - mean S) over rows and visible positions, per head; summed over i it is the variation of S.

    Args:
        terms: the terms of the scores, earliest first.
        seen: the positions that each row sees; all if None.
    """
    if seen is None:
        terms = terms - terms.mean(dim=-1, keepdim=True)
    else:
        # Hidden positions are out of the mean as well: a score that no row reads would shift all others.
        mean = (terms * seen).sum(dim=-1, keepdim=True) / seen.sum(dim=-1, keepdim=True)
        terms = (terms - mean) * seen
    return (terms * terms.sum(dim=0)).sum(dim=(1, 3, 4)).T


def shares_of(variations: Float64[Tensor, "heads terms"]) -> Float64[Tensor, "heads terms"]:
    """Divide variations of terms by that of their sum; zeros where the sum does not vary."""
    whole = variations.sum(dim=-1, keepdim=True)
    return variations / whole.where(whole != 0, 1.0)


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
