"""Attention in torch operations without a query × key tensor: by the tiles of passes.py, or some rows at a time for what tiles
do not know: other functions than the softmax, capped scores, columns of further keys per row.

Rows are independent: the forward pass discards their scores and the backward pass computes them again.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from addnorm.kernels import without_autocast
from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.column import attended_column, column_scores, kept, without_column
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import masked_scores
from addnorm.kernels.grouped_attention.tiles import LEAST_ROWS, budget_of, spans


def streaming(problem: AttentionProblem, budget: int | None = None) -> Tensor:
    """Compute the attended values, Float[Tensor, "batch heads query value_dim"]; `budget` replaces the one of tiles.py."""
    if problem.normalisation != "softmax" or problem.cap is not None or problem.column_keys:
        return by_rows(problem, budget)
    return attend_by_passes(problem, "streaming", budget)


def by_rows(problem: AttentionProblem, budget: int | None = None) -> Tensor:
    """Compute the attended values, Float[Tensor, "batch heads query value_dim"], some rows at a time.

    Memory: max(budget, 64 · batch · heads · key) scores at a time, in both passes; `budget` replaces the one of tiles.py.
    """
    p = problem
    step = max(LEAST_ROWS, (budget or budget_of(p.value)) // (p.batch * p.heads * p.key))
    with without_autocast(p.value):
        return torch.cat([_tile(p, rows) for rows in spans(p.query, step)], dim=2)


def _tile(problem: AttentionProblem, rows: slice) -> Tensor:
    if torch.is_grad_enabled():
        tile: Tensor = checkpoint(_attend_rows, problem, rows, use_reentrant=False, preserve_rng_state=False)
        return tile
    return _attend_rows(problem, rows)


def _attend_rows(problem: AttentionProblem, rows: slice) -> Tensor:
    # Dropout's mask is a function of a place in the whole problem, so it takes `rows` of p, not those of the part. The
    # part's keys begin at the first one: columns need no shift.
    p, part = problem, rows_of(problem, rows)
    scores = masked_scores(without_column(part))
    if p.column_keys:
        scores = torch.cat([scores, column_scores(part)], -1)
    attention = attention_of(part, scores)
    if p.seed is not None:
        attention = attention * kept(p, rows, part.key) / (1 - p.dropout)
    attended = attention[..., : part.key] @ part.value.repeat_interleave(p.group, 1).to(p.dtype)
    if p.column_keys:
        attended = attended + attended_column(part, attention[..., part.key :])
    return attended.to(p.value.dtype)


def rows_of(problem: AttentionProblem, rows: slice) -> AttentionProblem:
    """Restrict a problem to some of its rows and the keys that they may see."""
    p = problem
    # Rows of the part must stay the last of its keys, from which `causal` and a window are counted. Only keys at the end are
    # cut off: cutting at the front as well would move every distance of a bias by it.
    keys = rows.stop + p.offset if p.causal else p.key
    moved = keys - (rows.stop - rows.start) - (rows.start + p.offset)  # the rows of the part are the last of its keys
    bias = p.bias
    if bias is not None and p.first_distance is None:
        bias = bias[:, :, rows, :keys]
    return replace(
        p,
        queries=tuple(query[:, :, rows] for query in p.queries),
        keys=tuple(key[:, :, :keys] for key in p.keys),
        value=p.value[:, :, :keys],
        bias=bias,
        first_distance=None if p.first_distance is None else p.first_distance + moved,
        padding=None if p.padding is None else p.padding[:, :keys],
        sinks=p.sinks if p.sinks is None or p.sinks.dim() == 2 else p.sinks[:, :, rows],
        column_keys=tuple(key[:, :, rows] for key in p.column_keys),
        column_values=tuple(value[:, :, rows] for value in p.column_values),
    )
