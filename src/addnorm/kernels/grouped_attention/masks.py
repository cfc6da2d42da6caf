"""Masks: which keys a query row sees under causality, a sliding window and padding."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor

from addnorm.kernels.grouped_attention.problem import AttentionProblem


def visible(problem: AttentionProblem) -> Bool[Tensor, "#batch 1 #query key"] | None:
    """True where a query row sees a key; None where every row sees every key."""
    p = problem
    seen = band(p, slice(0, p.query), slice(0, p.key))
    if p.padding is None:
        return None if seen is None else seen[None, None]
    real = p.padding[:, None, None, :]
    return real if seen is None else seen[None, None] & real


def band(problem: AttentionProblem, rows: slice, keys: slice) -> Bool[Tensor, "rows keys"] | None:
    """The part of the mask that causality and the sliding window make, for some rows and keys; None where it hides nothing.

    Args:
        problem: the attention problem.
        rows: consecutive query rows.
        keys: consecutive keys.
    """
    p = problem
    if not p.causal:
        return None
    height, width = rows.stop - rows.start, keys.stop - keys.start
    own = rows.start + p.offset - keys.start  # column of the first row's own position
    hides_later = own + 1 < width
    hides_older = p.sliding_window is not None and own + height > p.sliding_window
    if not (hides_later or hides_older):
        return None
    seen = torch.ones(height, width, dtype=torch.bool, device=p.value.device)
    if hides_later:
        seen = seen.tril(own)
    if hides_older and p.sliding_window is not None:
        seen = seen.triu(own - p.sliding_window + 1)
    return seen


def num_visible(problem: AttentionProblem) -> Int64[Tensor, "#batch query"]:
    """Number of keys that each row sees."""
    p, device = problem, problem.value.device
    real = torch.ones(1, p.key, dtype=torch.bool, device=device) if p.padding is None else p.padding
    up_to = F.pad(real.cumsum(-1), (1, 0))  # of the keys before each position
    last = torch.arange(p.offset + 1, p.key + 1, device=device)
    last = last if p.causal else torch.full_like(last, p.key)
    first = torch.zeros_like(last) if p.sliding_window is None else (last - p.sliding_window).clamp(min=0)
    return up_to[:, last] - up_to[:, first]
