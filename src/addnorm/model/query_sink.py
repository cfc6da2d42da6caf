"""Sinks that depend on the query, as a key and value of each row's own column.

A score of attention is s · (q . k), with the weight s of the layer's scores. One further entry in every query, sink / s, which
all keys have at zero and a key of the column at one, gives that key the score of the sink; its value is zero. All that a column
may have then holds for such a sink: no query x key matrix, gradients, dropout, decoding.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from addnorm.errors import InputError

Column = list[tuple[Tensor, Tensor]]


def with_sinks(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    column: Column,
    sinks: Float[Tensor, "batch heads query"],
    scale: float,
) -> tuple[Tensor, Tensor, Column]:
    """Return queries and keys with the further entry, and the column with the sink as its last key."""
    query = torch.cat([query, (sinks / scale)[..., None].to(query.dtype)], dim=-1)
    column = [(F.pad(keys, (0, 1)), values) for keys, values in column]
    batch, kv_heads, rows = key.shape[0], key.shape[1], query.shape[2]
    of_sink = F.pad(key.new_zeros(batch, kv_heads, rows, key.shape[-1]), (0, 1), value=1.0)
    nothing = value.new_zeros(batch, kv_heads, rows, value.shape[-1])
    return query, F.pad(key, (0, 1)), [*column, (of_sink, nothing)]


def require_query_sink(kind: str, *, own_scores: bool, replays: bool, cap: float | None, attention: str) -> None:
    """Check what a sink that depends on the query is combined with.

    Raises:
        InputError: scores of several layers, a residual that replays attention, a cap, or an implementation without columns.
    """
    reasons: Sequence[tuple[bool, str, str]] = (
        (own_scores, "scores 'own', because its score must not join those of later layers", "other scores"),
        (not replays, "a residual that replays no attention, whose rows have no place for it", "one that does"),
        (cap is None, "score_cap null, because a sink joins after the cap", f"{cap!r}"),
        (
            attention in ("auto", "reference", "streaming"),
            "attention 'auto', 'reference' or 'streaming', which alone compute it",
            f"{attention!r}",
        ),
    )
    for holds, expected, got in reasons:
        if not holds:
            raise InputError(f"sink: expected {expected}, with sink {kind!r}, got {got}. Set sink to 'logit' instead.")
