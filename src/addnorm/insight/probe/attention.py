"""Rows of the attention of a recorded pass, or the reason why a layer has no weights on positions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from addnorm.anatomy.attention import HIDDEN, RecordedAttention
from addnorm.insight.flow.attention import blocks
from addnorm.insight.flow.recording import AttentionRows, Reason


@torch.no_grad()
def rows_of(attentions: Sequence[RecordedAttention], batch: int, seq: int) -> AttentionRows | Reason:
    """Read the rows of a layer's attention.

    Args:
        attentions: those of one layer in one pass.
        batch: number of sequences.
        seq: number of their positions.
    """
    if not attentions:
        return "no_attention"
    if len(attentions) > 1:
        return "combined_heads" if any(attended.combined for attended in attentions) else "several_attentions"
    (attended,) = attentions
    if attended.combined:
        return "combined_heads"
    rows = _of_weights(attended, batch, seq) if attended.weights is not None else _of_torch(attended, batch, seq)
    if rows is None:
        return "other_positions"
    return "negative_weights" if attended.weights is not None and bool((attended.weights < 0).any()) else rows


def _of_weights(attended: RecordedAttention, batch: int, seq: int) -> AttentionRows | None:
    assert attended.weights is not None
    weights, seen = (_by_head(tensor, batch) for tensor in (attended.weights, attended.seen))
    if weights is None or seen is None or weights.shape[-2:] != (seq, seq):
        return None
    return AttentionRows(
        keys=seq,
        block=lambda columns: weights[..., columns],
        visible=seen.sum(-1),
        query=_vectors(attended.query, batch, seq),
        key=_vectors(attended.key, batch, seq),
    )


def _of_torch(attended: RecordedAttention, batch: int, seq: int) -> AttentionRows | None:
    """The rows that torch's function computes, in float64."""
    query, key = _vectors(attended.query, batch, seq), _vectors(attended.key, batch, seq)
    if query is None or key is None:
        return None
    repeated = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = query.shape[-1] ** -0.5 if attended.scale is None else attended.scale
    mask = attended.mask if seq > 1 else None
    rows = torch.arange(seq, device=query.device)[:, None]

    def scores(columns: slice) -> tuple[Tensor, Tensor]:
        some = query @ repeated[:, :, columns].mT * scale
        seen = torch.ones_like(some, dtype=torch.bool)
        if attended.causal:
            seen = seen & (rows >= rows.mT[:, columns])
        if mask is not None:
            part = mask.expand(*mask.shape[:-1], seq)[..., columns]
            seen = seen & (part if mask.dtype == torch.bool else part > HIDDEN)
            some = some if mask.dtype == torch.bool else some + part.double()
        return some.masked_fill(~seen, -torch.inf), seen

    visible = query.new_zeros(query.shape[:-1], dtype=torch.int64)
    # Two passes over the columns: first the logarithm of each row's sum, then any block on its own. So rows of a long
    # text are never whole in memory.
    whole = query.new_full(query.shape[:-1], -torch.inf)
    for columns in blocks(seq):
        some, seen = scores(columns)
        visible, whole = visible + seen.sum(-1), torch.logaddexp(whole, some.logsumexp(-1))

    def block(columns: slice) -> Tensor:
        # A row that sees nothing reads nothing.
        return torch.exp(scores(columns)[0] - whole.masked_fill(visible == 0, 0.0)[..., None])

    return AttentionRows(keys=seq, block=block, visible=visible, query=query, key=key)


def _by_head(tensor: Tensor | None, batch: int) -> Any:
    """Bring […, query, key] into [batch, heads, query, key]; None if the first axis is not that of sequences."""
    if (
        tensor is None
        or tensor.dim() < 3
        or (tensor.shape[0] != batch if tensor.dim() > 3 else tensor.shape[0] % batch)
    ):
        return None
    return tensor.detach().reshape(batch, -1, *tensor.shape[-2:])


def _vectors(vectors: Tensor | None, batch: int, seq: int) -> Any:
    """Bring queries or keys into [batch, heads, seq, head_dim] in float64; None if they are of other positions."""
    if vectors is not None and seq == 1:  # query heads of one key head may lie in the axis of positions
        vectors = vectors.reshape(batch, -1, 1, vectors.shape[-1])
    by_head = _by_head(vectors, batch)
    return by_head.double() if by_head is not None and by_head.shape[-2] == seq else None
