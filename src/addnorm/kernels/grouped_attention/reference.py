r"""The definition, which holds every matrix: softmax( Σ_i s_i Q_i K_iᵀ + bias + mask ) V.

All other implementations are compared with this one. Memory: batch · heads · query · key entries per term and step.
"""

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.distance import matrix
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.masks import visible
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def reference(problem: AttentionProblem) -> Tensor:
    """The attended values, Float[Tensor, "batch heads query value_dim"]; differentiable to any order."""
    p, scores = problem, masked_scores(problem)
    if p.sinks is not None:
        attention = softmax_beside(scores, p.sinks)
    elif p.normalisation == "softmax":
        alive = (scores > float("-inf")).any(-1, keepdim=True)
        attention = scores.masked_fill(~alive, 0.0).softmax(-1) * alive
    else:
        attention = weigh(scores)
    if p.seed is not None:
        batch, heads, rows = (slice(0, size) for size in scores.shape[:3])
        kept = block(p.seed, batch=batch, heads=heads, rows=rows, columns=slice(0, p.key), dropout=p.dropout)
        attention = attention * kept / (1 - p.dropout)
    value = p.value.repeat_interleave(p.group, 1).to(p.dtype)
    return (attention @ value).to(p.value.dtype)


def softmax_beside(scores: Tensor, sinks: Tensor) -> Tensor:
    """Softmax of every row of scores and its head's sink, without the sink's own share: exp(s) / (exp(sink) + Σ exp(s))."""
    further = sinks.to(scores.dtype)[:, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([scores, further], -1).softmax(-1)[..., :-1]


def weigh(scores: Tensor) -> Tensor:
    """Turn scores into attention, row by row: relu(score)² over the number of scores that are not -inf."""
    seen = (scores > float("-inf")).sum(-1, keepdim=True).clamp(min=1)
    return scores.relu().square() / seen


def masked_scores(problem: AttentionProblem) -> Tensor:
    """Compute Float[Tensor, "batch heads query key"], the summed scores with bias; -inf at keys that a row may not see."""
    p, dtype = problem, problem.dtype
    keys = (key.repeat_interleave(p.group, 1).to(dtype) for key in p.keys)
    terms = torch.stack([q.to(dtype) @ k.mT for q, k in zip(p.queries, keys, strict=True)], -1)
    weights = p.weights[:, :, None, None].to(dtype) if isinstance(p.weights, Tensor) else p.weights
    scores = (terms * weights).sum(-1)
    if p.bias is not None:
        scores = scores + bias_matrix(p, p.bias).to(dtype)
    seen = visible(p)
    return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def bias_matrix(problem: AttentionProblem, bias: Tensor) -> Tensor:
    """Expand the problem's bias of either form to Float[Tensor, "#batch #heads query key"]."""
    p = problem
    return bias if p.first_distance is None else matrix(bias, p.first_distance, p.query, p.key)
