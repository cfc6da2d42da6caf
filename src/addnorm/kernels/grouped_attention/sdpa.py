r"""Grouped attention through torch's own attention, which knows one term: the terms go side by side along head_dim.

    Σ_i s_i Q_i K_iᵀ = [s_1 Q_1 | … | s_n Q_n] · [K_1 | … | K_n]ᵀ

A weight common to all terms is torch's `scale`, others are multiplied into the queries. Torch's linear-memory CPU
kernel wants one width for queries, keys and values and otherwise keeps the matrix without a word, so the narrower side
is filled up with zeros, which change nothing. Torch's own causal flag aligns at the first key where ours aligns at the
last, so with fewer queries than keys a bool query × key mask is passed instead. It knows no bias by distance: that
becomes a matrix here.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.masks import visible
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import bias_matrix


def sdpa(problem: AttentionProblem) -> Tensor:
    """The attended values; linear in memory where `refusal` and `holds_matrix` say nothing.

    Raises:
        InputError: `refusal` says why not.
    """
    p = problem
    if (reason := refusal(p)) is not None:
        raise InputError(reason)
    queries, keys = _side_by_side(p)
    width = max(queries.shape[-1], p.value_dim)
    mask, alive = _mask(p)
    attended = F.scaled_dot_product_attention(
        _filled(queries, width),
        _filled(keys, width),
        _filled(p.value, width),
        attn_mask=mask,
        is_causal=p.causal and mask is None and p.query > 1,
        scale=p.weights if isinstance(p.weights, float) else 1.0,
        enable_gqa=p.group > 1,
    )[..., : p.value_dim]
    return attended if alive is None else attended.masked_fill(~alive, 0.0)


def refusal(problem: AttentionProblem) -> str | None:
    """Why this implementation cannot do what is asked, as the message of an error; None where it can."""
    if problem.normalisation != "softmax":
        return f"impl='sdpa' takes normalisation='softmax', got '{problem.normalisation}'. Use impl='streaming'."
    if problem.seed is None:
        return None
    return (
        f"impl='sdpa' takes dropout=0.0, because torch would draw a mask that `seed` does not decide; "
        f"got dropout {problem.dropout}. Use impl='streaming' or impl='reference'."
    )


def holds_matrix(problem: AttentionProblem) -> bool:
    """Whether a query × key tensor comes into being here that the caller did not pass."""
    p = problem
    apart = p.causal and 1 < p.query != p.key
    masked = p.sliding_window is not None or (p.padding is not None and (p.causal or p.bias is not None))
    if p.bias is None:
        return apart or masked
    return apart or masked or p.causal or p.first_distance is not None or p.bias.requires_grad


def _side_by_side(p: AttentionProblem) -> tuple[Tensor, Tensor]:
    if isinstance(p.weights, float):
        queries = p.queries
    else:
        weights = p.weights.to(p.dtype).unbind(-1)
        queries = tuple((q * w[:, :, None, None]).to(q.dtype) for q, w in zip(p.queries, weights, strict=True))
    if len(queries) == 1:
        return queries[0], p.keys[0]
    return torch.cat(queries, -1), torch.cat(p.keys, -1)


def _filled(tensor: Tensor, width: int) -> Tensor:
    return tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))


def _mask(p: AttentionProblem) -> tuple[Tensor | None, Tensor | None]:
    """Torch's mask, and True at rows that see some key (None: all do).

    A row that sees none is given all of its keys, so that no kernel divides by zero, and its result is dropped later.
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
    mask = bias_matrix(p, p.bias).to(p.value.dtype)
    if seen is not None:
        mask = mask.masked_fill(~seen, float("-inf"))
    alive = (mask > float("-inf")).any(-1, keepdim=True)
    return mask.masked_fill(~alive, 0.0), alive
