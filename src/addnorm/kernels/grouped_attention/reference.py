r"""The definition, which holds every matrix: softmax( cap( Σ_i s_i Q_i K_iᵀ ) + bias + mask ) V.

The entries of a column are further keys, each of which its own row alone sees.

All other implementations are compared with this one. Memory: batch · heads · query · key entries per term and step.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from addnorm.kernels.grouped_attention.column import as_keys, kept, own_row
from addnorm.kernels.grouped_attention.distance import matrix
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem, visible


def reference(problem: AttentionProblem) -> Tensor:
    """The attended values, Float[Tensor, "batch heads query value_dim"]; differentiable to any order."""
    p, scores = problem, masked_scores(problem)
    attention = attention_of(p, scores)
    if p.seed is not None:
        remaining = kept(p, slice(0, p.query), p.key)
        if p.column_keys:
            of_column = remaining[..., p.key :].repeat_interleave(p.query, -1)
            remaining = torch.cat([remaining[..., : p.key], of_column], -1)
        attention = attention * remaining / (1 - p.dropout)
    value = as_keys([p.value, *p.column_values]).repeat_interleave(p.group, 1).to(p.dtype)
    return (attention @ value).to(p.value.dtype)


def masked_scores(problem: AttentionProblem) -> Tensor:
    """Compute Float[Tensor, "batch heads query key"], the summed scores, capped, with bias; -inf where unseen.

    With a column, "batch heads query key+query*entry": its keys are behind the others.
    """
    p, dtype = problem, problem.dtype
    of_terms = (as_keys([p.keys[0], *p.column_keys]),) if p.column_keys else p.keys
    keys = (key.repeat_interleave(p.group, 1).to(dtype) for key in of_terms)
    terms = torch.stack([q.to(dtype) @ k.mT for q, k in zip(p.queries, keys, strict=True)], -1)
    weights = p.weights[:, :, None, None].to(dtype) if isinstance(p.weights, Tensor) else p.weights
    scores = p.capped((terms * weights).sum(-1))
    if p.bias is not None:
        scores = scores + F.pad(bias_matrix(p, p.bias).to(dtype), (0, scores.shape[-1] - p.key))
    seen = visible(p)
    if p.column_keys:
        of_keys = own_row(p).new_ones(1, 1, 1, p.key) if seen is None else seen
        seen = torch.cat([of_keys.expand(-1, -1, p.query, -1), own_row(p).expand(len(of_keys), 1, -1, -1)], -1)
    return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def bias_matrix(problem: AttentionProblem, bias: Tensor) -> Tensor:
    """Expand the problem's bias of either form to Float[Tensor, "#batch #heads query key"]."""
    p = problem
    return bias if p.first_distance is None else matrix(bias, p.first_distance, p.query, p.key)
