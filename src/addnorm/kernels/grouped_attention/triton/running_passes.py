"""The passes of the running sum on a device, in Triton kernels, for ../kept_scores/running.py."""

from dataclasses import replace
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from addnorm.kernels.grouped_attention.launches import Launch, launch_of
from addnorm.kernels.grouped_attention.packed import block_rows, slab_entries
from addnorm.kernels.grouped_attention.passes import Gradients
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.triton.operators import arguments as operator_arguments
from addnorm.kernels.grouped_attention.triton.operators import present
from addnorm.kernels.grouped_attention.triton.passes import score_arguments, summed_bias, with_own_bias
from addnorm.kernels.grouped_attention.triton.running import (
    attend_sum,
    differentiate_sum_keys,
    differentiate_sum_rows,
    sum_terms,
)

Ratio = float | Tensor | None
"""A layer's scores as a multiple of what the buffer holds; a tensor of one number on the device; None for 1."""


def sum_on_device(problem: AttentionProblem, total: Tensor, *, alpha: float) -> None:
    """Write the masked sum of all the problem's terms, times alpha, into a flat buffer."""
    p = problem
    queries, keys = torch.stack(p.queries), torch.stack(p.keys)
    weights = queries.new_full((p.batch, p.heads, len(p.queries)), alpha, dtype=torch.float32)
    (*_, padding, _), _, switches = _launch(p)
    names = ("HEAD_DIM", "BLOCK_DIM", "CAUSAL", "WINDOW", "HAS_PADDING", "UPCAST")
    with torch.cuda.device_of(p.value):
        sum_terms[_by_rows(p)](
            queries, keys, weights, padding, total,
            p.heads, p.kv_heads, len(p.queries), queries.stride(0), keys.stride(0), p.query, p.key, slab_entries(p),
            **{name: switches[name] for name in names}, **_tiles("sum_terms", p).arguments(),
        )  # fmt: skip


def attend_on_sum(
    problem: AttentionProblem, total: Tensor, *, alpha: float, beta: float, ratio: Ratio, adds: bool, first: bool
) -> tuple[Tensor, Tensor]:
    """Add the problem's only term to the sum, S <- beta S + alpha Q K^T, and attend with the scores ratio S + bias.

    Args:
        problem: of the layer's own term alone.
        total: the sum, a flat buffer.
        adds: False if the sum has the term already.
        first: True if the buffer holds nothing yet; the sum is masked then.

    Returns:
        The attended values and the log-sum-exp of each row.
    """
    p = problem
    query, key, value = _operands(p)
    out = p.value.new_empty(p.batch, p.heads, p.query, p.value_dim)
    log_sum = p.value.new_empty(p.batch, p.heads, p.query, dtype=torch.float32)
    pointers, sizes, switches = _launch(p)
    with torch.cuda.device_of(p.value):
        attend_sum[_by_rows(p)](
            query, key, value, total, *pointers, _in_memory(ratio, p), out, log_sum, alpha, beta,
            **sizes, **switches, **_tiles("attend_sum", p).arguments(), SCALED=ratio is not None, ADDS=adds, FIRST=first,
        )  # fmt: skip
    return out, log_sum


def differentiate_on_sum(
    problem: AttentionProblem,
    total: Tensor,
    gradient: Tensor,
    out: Tensor,
    log_sum: Tensor,
    grad: Tensor | None,
    *,
    alpha: float,
    above: float | None,
    below: float | None,
    ratio: Ratio,
    weight_needed: bool,
    bias_needed: bool,
) -> Gradients:
    """Gradients of sum(grad * out) and of the layers above, G <- ratio dS + above G; then S <- below (S - alpha Q K^T).

    Args:
        problem: of the layer's own term alone.
        total: the sum S, a flat buffer.
        gradient: G, a flat buffer.
        grad: of the attended values; None if nothing depends on them.
        above: None if no layer above was differentiated.
        below: None if no layer below will be.

    Returns:
        The gradients; that of the weights is the sum of dS * S, for the caller to scale.
    """
    p = problem
    apart = with_own_bias(p) if bias_needed else p
    if apart is not p:
        gradients = differentiate_on_sum(
            *(apart, total, gradient, out, log_sum, grad),
            alpha=alpha,
            above=above,
            below=below,
            ratio=ratio,
            weight_needed=weight_needed,
            bias_needed=True,
        )
        return replace(gradients, bias=summed_bias(p, gradients.bias))
    query, key, value = _operands(p)
    (bias, distance, _, seed), sizes, switches = _launch(p)
    del switches["HAS_PADDING"]  # the sum is masked already
    by_matrix, by_distance = switches["HAS_BIAS"], switches["HAS_DISTANCE"]
    share = out.new_zeros(()).expand_as(out) if grad is None else grad
    delta = (share.to(p.dtype) * out.to(p.dtype)).sum(-1).contiguous()
    share = share.to(value.dtype).contiguous()
    d_query, d_key, d_value = (torch.empty_like(each, dtype=torch.float32) for each in (query, key, value))
    wanted = p.bias is not None and bias_needed and grad is not None
    d_bias = torch.zeros_like(bias, dtype=torch.float32) if wanted and by_matrix else d_query
    d_distance = torch.zeros_like(distance, dtype=torch.float32) if wanted and by_distance else d_query
    grid = _by_rows(p)
    d_weight = d_query.new_zeros(grid[1], grid[0])
    factor = _in_memory(ratio, p)
    shared: dict[str, Any] = {**sizes, **switches, "SCALED": ratio is not None, "HAS_GRAD": grad is not None}
    tiles = _tiles("differentiate_sum_keys", p)
    with torch.cuda.device_of(p.value):
        differentiate_sum_rows[grid](
            key, value, total, gradient, bias, distance, seed, factor, log_sum, delta, share,
            d_query, d_bias, d_distance, d_weight, alpha, above or 0.0,
            **shared, **_tiles("differentiate_sum_rows", p).arguments(),
            HAS_ABOVE=above is not None, BIAS_NEEDED=wanted, WEIGHT_NEEDED=weight_needed,
        )  # fmt: skip
        by_keys = (triton.cdiv(p.key, tiles.keys), p.batch * p.kv_heads)
        differentiate_sum_keys[by_keys](
            query, key, value, total, gradient, bias, distance, seed, factor, log_sum, share, d_key, d_value,
            alpha, below or 0.0, **shared, **tiles.arguments(), LAST=below is None,
        )  # fmt: skip
    found_bias = None
    if p.bias is not None and bias_needed:
        zero = torch.zeros_like(p.bias, dtype=torch.float32)
        found_bias = zero if not wanted else d_bias if by_matrix else d_distance[None]
    return Gradients(
        queries=(d_query.to(p.queries[0].dtype),),
        keys=(d_key.to(p.keys[0].dtype),),
        value=d_value.to(p.value.dtype),
        weights=d_weight.sum(dtype=torch.float64) if weight_needed else None,
        bias=found_bias,
    )


def _operands(p: AttentionProblem) -> tuple[Tensor, Tensor, Tensor]:
    return p.queries[-1].contiguous(), p.keys[-1].contiguous(), p.value.contiguous()


def _by_rows(p: AttentionProblem) -> tuple[int, int]:
    return triton.cdiv(p.query, block_rows(p)), p.batch * p.heads


def _launch(p: AttentionProblem) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]:
    """Bias by matrix, bias by distance, padding and seed; run-time sizes; compile-time constants."""
    arguments = score_arguments(p)
    bias, distance, _, padding, seed, *_ = arguments
    sizes, switches = operator_arguments(p.queries[-1], p.keys[-1], p.value, *arguments)
    sizes["slab_entries"] = slab_entries(p)
    return present(p.value, bias, distance, padding, seed), sizes, switches


def _tiles(kernel: str, p: AttentionProblem) -> Launch:
    return launch_of(kernel, p.queries[-1], p.value, p.query, p.key, biased=p.bias is not None)


def _in_memory(ratio: Ratio, p: AttentionProblem) -> Tensor:
    if isinstance(ratio, float):
        return p.value.new_full((1,), ratio, dtype=torch.float32)
    return p.value if ratio is None else ratio.to(torch.float32)
