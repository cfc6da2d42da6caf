r"""Scores kept as a running sum: the one form here that holds query × key matrices, for short lengths and for decoding.

    R_m = R_{m-1} + s Q_m K_mᵀ,        R_0 = mask (0 where a row may see a key, -inf elsewhere)
    P_m = softmax(r_m R_m + bias)

Each layer adds one product, however deep it lies, where the forms without a matrix compute all m products again. That
needs one weight s r_m for all layers of the sum. The mask is in the sum from the start: -inf stays -inf, and no
derivative passes it, since its probability is zero. With `query` rows only, as in decoding, nothing is quadratic.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.arguments import draw_seed
from addnorm.kernels.grouped_attention.dropout import block


def running_scores(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    before: Float[Tensor, "batch heads query key"] | None,
    *,
    scale: float,
    causal: bool,
) -> Float[Tensor, "batch heads query key"]:
    """The running sum with one more layer's scores.

    Args:
        query: the last `query` of the `key` positions.
        key: query head h reads key head h // (heads // kv_heads).
        before: the sum of the layers so far; None at the first.
        scale: factor of every layer's product.
        causal: whether a row is kept from seeing later keys; only asked at the first layer.
    """
    batch, heads, rows, _ = query.shape
    kv_heads, columns = key.shape[1:3]
    grouped = (
        query.unflatten(1, (kv_heads, -1)).flatten(2, 3).flatten(0, 1)
    )  # [batch * kv_heads, group * query, head_dim]
    if before is not None:
        start = before.view(batch * kv_heads, -1, columns)
    else:
        start = query.new_zeros(rows, columns)
        if causal and rows > 1:
            later = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu(columns - rows + 1)
            start = start.masked_fill(later, float("-inf"))
        start = start.repeat(heads // kv_heads, 1)
    total = torch.baddbmm(start, grouped, key.flatten(0, 1).mT, alpha=scale)
    return total.view(batch, heads, rows, columns)


def weighted_scores(
    total: Float[Tensor, "batch heads query key"],
    ratio: float | Float[Tensor, ""],
    bias: Float[Tensor, "#batch #heads query key"] | None,
) -> Float[Tensor, "batch heads query key"]:
    """What this layer's attention is made of: a running sum times this layer's weight over `scale`, plus the bias."""
    if isinstance(ratio, Tensor):  # its gradient would meet zero times infinity
        hidden = total == float("-inf")
        scores = (total.masked_fill(hidden, 0.0) * ratio).masked_fill(hidden, float("-inf"))
    else:
        scores = total if ratio == 1.0 else total * ratio
    return scores if bias is None else scores + bias


def dropped(
    attention: Float[Tensor, "batch heads query key"], dropout: float
) -> Float[Tensor, "batch heads query key"]:
    """The attention without a random share of its entries, those that `attend` would drop after the same draws."""
    if not dropout:
        return attention
    batch, heads, rows, columns = (slice(0, size) for size in attention.shape)
    seed = draw_seed(attention.device)
    kept = block(seed, batch=batch, heads=heads, rows=rows, columns=columns, dropout=dropout)
    return attention * kept / (1 - dropout)
