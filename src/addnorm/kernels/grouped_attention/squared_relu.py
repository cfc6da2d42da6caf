r"""Grouped attention whose scores are squared instead of exponentiated: relu( Σ_i s_i Q_i K_iᵀ + bias )² / n · V.

n is the number of keys that a row sees, so that neither padding nor later tokens change a row. There is no sum over a row
to divide by, so a tile of rows stands alone: forward drops its scores, backward computes them again.

Source: Hua et al. 2022, arXiv:2202.10447, gated attention unit; So et al. 2021, arXiv:2109.08668 (squared ReLU).
Differs from the source: n counts the keys that the row sees, not those of the sequence.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.precision import without_autocast
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import masked_scores, weigh
from addnorm.kernels.grouped_attention.tiles import LEAST_ROWS, budget_of, spans


def squared_relu(problem: AttentionProblem, budget: int | None = None) -> Tensor:
    """The attended values, Float[Tensor, "batch heads query value_dim"], some rows at a time.

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
    p, part = problem, rows_of(problem, rows)
    attention = weigh(masked_scores(part))
    if p.seed is not None:
        batch, heads = slice(0, p.batch), slice(0, p.heads)
        kept = block(p.seed, batch=batch, heads=heads, rows=rows, columns=slice(0, part.key), dropout=p.dropout)
        attention = attention * kept / (1 - p.dropout)
    value = part.value.repeat_interleave(p.group, 1).to(p.dtype)
    return (attention @ value).to(p.value.dtype)


def rows_of(problem: AttentionProblem, rows: slice) -> AttentionProblem:
    """The same problem for some of its rows, and for the keys that they may see."""
    p = problem
    keys = rows.stop + p.offset if p.causal else p.key
    moved = keys - (rows.stop - rows.start) - (rows.start + p.offset)  # the part's rows count as the last of its keys
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
    )
