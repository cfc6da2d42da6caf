"""Measures of the attention of a recorded pass."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from addnorm.anatomy.recording import Attended
from addnorm.insight.flow.attention import ONE_HOT
from addnorm.insight.isotropy import mean_direction


@torch.no_grad()
def attention_measures(attentions: Sequence[Attended | None]) -> list[dict[str, float]]:
    """Measure the attention of every layer in one pass; {} for a layer without one."""
    found: list[dict[str, float]] = []
    before: Tensor | None = None
    for attention in attentions:
        if attention is None:
            found.append({})
            before = None
            continue
        rows, visible = probabilities(attention)
        measures = _rows(rows, visible)
        if before is not None and before.shape == rows.shape:
            measures["similarity"] = _similarity(before, rows, visible)
        if attention.query is not None and attention.key is not None:
            measures["query_direction"] = mean_direction(attention.query).mean().item()
            measures["key_direction"] = mean_direction(attention.key).mean().item()
        found.append(measures)
        before = rows
    return found


def probabilities(attention: Attended) -> tuple[Tensor, Tensor]:
    """The rows of an attention in float64, [batch, heads, query, key], and which keys they see."""
    if attention.probabilities is not None:
        rows = attention.probabilities.detach().double()
        return rows, rows > 0
    assert attention.query is not None
    assert attention.key is not None
    query, key = attention.query.detach().double(), attention.key.detach().double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = query.shape[-1] ** -0.5 if attention.scale is None else attention.scale
    scores = query @ key.mT * scale
    seen = torch.ones_like(scores, dtype=torch.bool)
    if attention.causal:
        seen = seen.tril()
    if attention.mask is not None and attention.mask.dtype == torch.bool:
        seen = seen & attention.mask
    elif attention.mask is not None:
        scores = scores + attention.mask.double()
        seen = seen & (attention.mask > torch.finfo(attention.mask.dtype).min / 2)
    return torch.nan_to_num(scores.masked_fill(~seen, -math.inf).softmax(-1)), seen


def _rows(rows: Tensor, seen: Tensor) -> dict[str, float]:
    visible = seen.sum(-1)
    several = visible > 1
    if not bool(several.any()):
        return {}
    entropy = -torch.special.xlogy(rows, rows).sum(-1)[several]
    return {
        "entropy": entropy.mean().item(),
        "entropy_share": (entropy / visible[several].double().log()).mean().item(),
        "one_hot": (rows.amax(-1)[several] > ONE_HOT).double().mean().item(),
        "first_share": rows[..., 0][several].mean().item(),
    }


def _similarity(one: Tensor, other: Tensor, seen: Tensor) -> float:
    """1 - Jensen-Shannon divergence / ln 2, mean over heads and rows that see two positions or more."""
    mid = (one + other) / 2
    parts = (torch.special.xlogy(one, one) + torch.special.xlogy(other, other)) / 2 - torch.special.xlogy(mid, mid)
    return (1 - parts.sum(-1)[seen.sum(-1) > 1] / math.log(2)).mean().item()
