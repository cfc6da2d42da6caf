"""The column beside a row of scores: keys and values of its own position, such as those of earlier layers.

A problem's column has one key and one value per query row and entry, so that its scores take query · entries numbers. They join
the row before the softmax, after caps, without bias and masks.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def without_column(problem: AttentionProblem) -> AttentionProblem:
    """The same problem over the sequence alone."""
    return replace(problem, column_keys=(), column_values=())


def column_scores(problem: AttentionProblem) -> Float[Tensor, "batch heads query entry"]:
    """Scores of the column's keys, with the weight and the cap of all scores."""
    p = problem
    queries = p.queries[0].to(p.dtype).unflatten(1, (p.kv_heads, p.group)).movedim(2, 3)  # [.., query, group, head_dim]
    products = queries @ _side_by_side(p.column_keys).to(p.dtype).mT  # [batch, kv_heads, query, group, entry]
    weight = p.weights[:, :, None].to(p.dtype) if isinstance(p.weights, Tensor) else p.weights
    return p.capped(products.movedim(3, 2).flatten(1, 2) * weight)


def attended_column(
    problem: AttentionProblem, attention: Float[Tensor, "batch heads query entry"]
) -> Float[Tensor, "batch heads query value_dim"]:
    """Gather the column's values with these probabilities."""
    p = problem
    values = _side_by_side(p.column_values).to(attention.dtype)
    by_row = attention.unflatten(1, (p.kv_heads, p.group)).movedim(2, 3)  # [.., query, group, entry]
    return (by_row @ values).movedim(3, 2).flatten(1, 2)


def as_keys(parts: Sequence[Tensor]) -> Float[Tensor, "batch kv_heads places entries"]:
    """Lay the column's keys or values out as further keys or values: all rows of the first entry, of the second, …"""
    return torch.cat(tuple(parts), dim=2)


def own_row(problem: AttentionProblem) -> Bool[Tensor, "query places"]:
    """True where a row sees a further key of `as_keys`, which is its own."""
    p = problem
    return torch.eye(p.query, dtype=torch.bool, device=p.value.device).repeat(1, len(p.column_keys))


def kept(problem: AttentionProblem, rows: slice, keys: int) -> Bool[Tensor, "batch heads rows columns"]:
    """True where dropout keeps a probability: of the first `keys` keys, then of the column, whose places follow all keys."""
    p = problem
    assert p.seed is not None
    spans = [slice(0, keys)] + ([slice(p.key, p.key + len(p.column_keys))] if p.column_keys else [])
    seed, batch, heads = p.seed, slice(0, p.batch), slice(0, p.heads)
    parts = [block(seed, batch=batch, heads=heads, rows=rows, columns=span, dropout=p.dropout) for span in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _side_by_side(parts: Sequence[Tensor]) -> Float[Tensor, "batch kv_heads query entry dim"]:
    return torch.stack(tuple(parts), dim=3)
