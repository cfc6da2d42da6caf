r"""Grouped attention through torch's own attention, which takes one term: the terms are concatenated along head_dim.

    Σ_i s_i Q_i K_iᵀ = [s_1 Q_1 | … | s_n Q_n] · [K_1 | … | K_n]ᵀ

A positive weight common to all terms becomes torch's `scale`, others are multiplied into the queries. Torch's linear-memory CPU
kernel needs one width for queries, keys and values and otherwise silently holds the matrix, so the narrower side is padded
with zeros, which change nothing. Torch's causal flag aligns at the first key, ours at the last, so with fewer queries than
keys a bool query × key mask is passed instead. A bias by distance is expanded to a matrix.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.problem import AttentionProblem, visible
from addnorm.kernels.grouped_attention.reference import bias_matrix

FLASH_WIDTH = 256
"""Largest width of torch's Flash kernel."""


def sdpa(problem: AttentionProblem) -> Tensor:
    """Compute the attended values; memory is linear in the length unless `holds_matrix`.

    Raises:
        InputError: the problem is not supported; see `refusal`.
    """
    p = problem
    if (reason := refusal(p)) is not None:
        raise InputError(reason)
    queries, keys = _side_by_side(p)
    width = max(queries.shape[-1], p.value_dim)
    mask, alive = _mask(p)
    scale = p.weights if isinstance(p.weights, float) and p.weights > 0 else 1.0
    causal = p.causal and mask is None and p.query > 1
    attend = partial(F.scaled_dot_product_attention, attn_mask=mask, is_causal=causal, scale=scale)
    if p.value.is_cuda and width > FLASH_WIDTH:
        # Only torch's memory-efficient kernel takes these. It needs no equal widths, and knows no groups: given groups, torch
        # would silently hold the matrix.
        keys, value = (tensor.repeat_interleave(p.group, 1) if p.group > 1 else tensor for tensor in (keys, p.value))
        attended = attend(queries, keys, value)
    else:
        filled = _filled(queries, width), _filled(keys, width), _filled(p.value, width)
        attended = attend(*filled, enable_gqa=p.group > 1)[..., : p.value_dim]
    return attended if alive is None else attended.masked_fill(~alive, 0.0)


def refusal(problem: AttentionProblem) -> str | None:
    """Return the error message for a problem that this implementation does not support; None if it does."""
    if problem.normalisation != "softmax":
        return f"impl='sdpa' takes normalisation='softmax', got '{problem.normalisation}'. Use impl='streaming'."
    if problem.cap is not None:
        return (
            f"impl='sdpa' takes no cap of scores, for which torch's attention has no place, got {problem.cap}. "
            "Use impl='streaming' or 'reference'."
        )
    if problem.sinks is not None:
        return (
            "impl='sdpa' takes no sinks, for which torch's attention has no place. Use impl='streaming' or 'reference'."
        )
    if problem.column_keys:
        return "impl='sdpa' takes no column, for which torch's attention has no place. Use impl='streaming' or 'reference'."
    if problem.seed is None:
        return None
    return (
        f"impl='sdpa' takes dropout=0.0, because torch would draw a mask of its own instead of using `seed`; "
        f"got dropout {problem.dropout}. Use impl='streaming' or impl='reference'."
    )


def holds_matrix(problem: AttentionProblem) -> bool:
    """Return True if the call creates a query × key tensor that the caller did not pass."""
    p = problem
    apart = p.causal and 1 < p.query != p.key
    masked = p.sliding_window is not None or (p.padding is not None and (p.causal or p.bias is not None))
    if p.bias is None:
        return apart or masked
    return apart or masked or p.causal or p.first_distance is not None or p.bias.requires_grad


def _side_by_side(p: AttentionProblem) -> tuple[Tensor, Tensor]:
    if isinstance(p.weights, float):
        # Torch scales what it has masked with -inf: a scale of zero or less would show it, or make NaN of it.
        queries = p.queries if p.weights > 0 else tuple(query * p.weights for query in p.queries)
    elif p.value.is_cuda and len(p.queries) > 1:
        # One product over all terms: a GPU takes longer to start a product for each than to compute it. Rounded alike.
        stacked, factors = torch.stack(p.queries, -2), p.weights.to(p.dtype)[:, :, None, :, None]
        return (stacked * factors).to(stacked.dtype).flatten(-2), torch.cat(p.keys, -1)
    else:
        weights = p.weights.to(p.dtype).unbind(-1)
        queries = tuple((q * w[:, :, None, None]).to(q.dtype) for q, w in zip(p.queries, weights, strict=True))
    if len(queries) == 1:
        return queries[0], p.keys[0]
    return torch.cat(queries, -1), torch.cat(p.keys, -1)


def _filled(tensor: Tensor, width: int) -> Tensor:
    return tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))


def _mask(p: AttentionProblem) -> tuple[Tensor | None, Tensor | None]:
    """Return torch's mask, and True at rows that see a key (None if all do).

    A row without a visible key is given all keys, so that no kernel divides by zero; the caller sets its result to zero.
    """
    whole = not p.causal or p.query == p.key or p.query == 1
    if p.bias is None and p.padding is None and p.sliding_window is None and whole:
        return None, None
    seen = visible(p)
    if p.bias is None:
        if seen is None:
            return None, None
        alive = seen.any(-1, keepdim=True)
        return seen | ~alive, alive
    mask = bias_matrix(p, p.bias)
    if seen is not None:
        mask = mask.masked_fill(~seen, float("-inf"))
    alive = (mask > float("-inf")).any(-1, keepdim=True)
    if mask.dtype != p.value.dtype:
        # A softmax does not see what a row has in common, but a bias of 300 is rounded by 1 in bfloat16.
        largest = mask.detach().amax(-1, keepdim=True).masked_fill(~alive, 0.0)
        mask = (mask - largest).to(p.value.dtype)
    return mask.masked_fill(~alive, 0.0), alive
