r"""The definition, which holds every matrix: softmax( cap( Σ_i s_i Q_i K_iᵀ ) + bias + mask ) V.

All other implementations are compared with this one. Memory: batch · heads · query · key entries per term and step.
"""

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.distance import matrix
from addnorm.kernels.grouped_attention.dropout import block
from addnorm.kernels.grouped_attention.masks import visible
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def reference(problem: AttentionProblem) -> Tensor:
    """The attended values, Float[Tensor, "batch heads query value_dim"]; differentiable to any order."""
    p, scores = problem, masked_scores(problem)
    attention = attention_of(p, scores)
    if p.seed is not None:
        batch, heads, rows = (slice(0, size) for size in scores.shape[:3])
        kept = block(p.seed, batch=batch, heads=heads, rows=rows, columns=slice(0, p.key), dropout=p.dropout)
        attention = attention * kept / (1 - p.dropout)
    value = p.value.repeat_interleave(p.group, 1).to(p.dtype)
    return (attention @ value).to(p.value.dtype)


def masked_scores(problem: AttentionProblem) -> Tensor:
    """Compute Float[Tensor, "batch heads query key"], the summed scores, capped, with bias; -inf where unseen."""
    p, dtype = problem, problem.dtype
    keys = (key.repeat_interleave(p.group, 1).to(dtype) for key in p.keys)
    terms = torch.stack([q.to(dtype) @ k.mT for q, k in zip(p.queries, keys, strict=True)], -1)
    weights = p.weights[:, :, None, None].to(dtype) if isinstance(p.weights, Tensor) else p.weights
    scores = capped((terms * weights).sum(-1), p.cap)
    if p.bias is not None:
        scores = scores + bias_matrix(p, p.bias).to(dtype)
    seen = visible(p)
    return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def capped(scores: Tensor, cap: float | None) -> Tensor:
    """Bound the size of summed scores smoothly, cap · tanh(score / cap); None for no bound.

    Source: Gemma Team 2024, "Gemma 2", arXiv:2408.00118 §2.
    """
    return scores if cap is None else cap * torch.tanh(scores / cap)


def bias_matrix(problem: AttentionProblem, bias: Tensor) -> Tensor:
    """Expand the problem's bias of either form to Float[Tensor, "#batch #heads query key"]."""
    p = problem
    return bias if p.first_distance is None else matrix(bias, p.first_distance, p.query, p.key)
