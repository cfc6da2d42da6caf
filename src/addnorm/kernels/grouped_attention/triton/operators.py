"""The kernels as torch operators, so that export and compile see one call and its shapes.

The operators take one tensor for all terms; every tensor is laid out as the kernels index it (contiguous, positions
before entries). Widths are filled up to a power of two of at least 16 by masks, never by copies.
"""

from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton.runtime.interpreter import InterpretedFunction  # type: ignore[import-untyped]

from addnorm.kernels.grouped_attention.launches import launch_of
from addnorm.kernels.grouped_attention.triton.backward import differentiate_keys, differentiate_rows
from addnorm.kernels.grouped_attention.triton.forward import attend_rows

INTERPRETED = isinstance(attend_rows, InterpretedFunction)
"""True if the kernels run in Triton's interpreter (TRITON_INTERPRET=1 when this module was first imported)."""


@triton_op("addnorm::attend_grouped", mutates_args={})
def attend_grouped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    distance: Tensor | None,
    distance_first: int,
    padding: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    causal: bool,
    sliding_window: int,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """(attended values, log-sum-exp of every row): q [term, batch, heads, query, head_dim], weights [batch, heads, term]."""
    _, batch, heads, num_rows, _ = q.shape
    out = v.new_empty(batch, heads, num_rows, v.shape[-1])
    log_sum = v.new_empty(batch, heads, num_rows, dtype=torch.float32)
    given = (bias, distance, distance_first, padding, seed, dropout, causal, sliding_window)
    sizes, switches = arguments(q, k, v, *given)
    biased = bias is not None or distance is not None
    tiles = launch_of("attend_rows", q, v, num_rows, k.shape[3], biased=biased)
    wrap_triton(attend_rows)[triton.cdiv(num_rows, tiles.rows), batch * heads](
        *(q, k, v, weights, *present(v, bias, distance, padding, seed), out, log_sum),
        **_terms(q, k),
        **sizes,
        cap=cap,
        CAPPED=cap > 0,
        **switches,
        **tiles.arguments(),
    )
    return out, log_sum


@attend_grouped.register_fake  # type: ignore[untyped-decorator]
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    shape = (*q.shape[1:4], v.shape[-1])
    return v.new_empty(shape), v.new_empty(shape[:-1], dtype=torch.float32)


@triton_op("addnorm::differentiate_grouped", mutates_args={})
def differentiate_grouped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    distance: Tensor | None,
    distance_first: int,
    padding: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    causal: bool,
    sliding_window: int,
    cap: float,
    log_sum: Tensor,
    delta: Tensor,
    grad: Tensor,
    bias_needed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(dS K of every term, dK, dV, d_bias, d_distance), all float32; the last two empty where not asked for."""
    _, batch, heads, num_rows, _ = q.shape
    kv_heads, num_keys = k.shape[2:4]
    d_q, d_k = torch.zeros_like(q, dtype=torch.float32), torch.zeros_like(k, dtype=torch.float32)
    d_v = torch.empty_like(v, dtype=torch.float32)
    d_bias, d_distance = _sums(v, bias, distance, bias_needed)
    given = (bias, distance, distance_first, padding, seed, dropout, causal, sliding_window)
    sizes, switches = arguments(q, k, v, *given)
    inputs = (q, k, v, weights, *present(v, bias, distance, padding, seed), log_sum, delta, grad)
    shared = {**_terms(q, k), **sizes, "cap": cap, "CAPPED": cap > 0, "ALONE": len(q) == 1, **switches}
    biased = bias is not None or distance is not None
    tiles = launch_of("differentiate_rows", q, v, num_rows, num_keys, biased=biased)
    wrap_triton(differentiate_rows)[triton.cdiv(num_rows, tiles.rows), batch * heads](
        *inputs, d_q, d_bias, d_distance, **shared, BIAS_NEEDED=bias_needed, **tiles.arguments()
    )
    tiles = launch_of("differentiate_keys", q, v, num_rows, num_keys, biased=biased)
    wrap_triton(differentiate_keys)[triton.cdiv(num_keys, tiles.keys), batch * kv_heads](
        *inputs, d_k, d_v, **shared, **tiles.arguments()
    )
    return d_q, d_k, d_v, d_bias, d_distance


@differentiate_grouped.register_fake  # type: ignore[untyped-decorator]
def _(
    q: Tensor, k: Tensor, v: Tensor, weights: Tensor, bias: Tensor | None, distance: Tensor | None, *rest: Any
) -> Any:
    d_q, d_k, d_v = (torch.empty_like(tensor, dtype=torch.float32) for tensor in (q, k, v))
    return d_q, d_k, d_v, *_sums(v, bias, distance, rest[-1])


def _sums(v: Tensor, bias: Tensor | None, distance: Tensor | None, needed: bool) -> tuple[Tensor, Tensor]:
    wanted = [torch.zeros_like(t, dtype=torch.float32) if t is not None and needed else None for t in (bias, distance)]
    first, second = (v.new_zeros(0, dtype=torch.float32) if total is None else total for total in wanted)
    return first, second


def _terms(q: Tensor, k: Tensor) -> dict[str, int]:
    return {"num_terms": len(q), "term_queries": q.stride(0), "term_keys": k.stride(0)}


def present(v: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """Replace None by a valid tensor: a kernel's pointer must be valid even if a switch says that it is never read."""
    return tuple(v if tensor is None else tensor for tensor in tensors)


def arguments(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    distance: Tensor | None,
    distance_first: int,
    padding: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    causal: bool,
    sliding_window: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of every kernel besides tensors, terms and tiles: run-time sizes and compile-time constants."""
    heads, num_rows, head_dim = q.shape[-3:]
    kv_heads, num_keys = k.shape[-3:-1]
    bias_steps = (0, 0, 0, 0) if bias is None else steps(bias)
    sizes = {
        "threshold": round(dropout * 2**32),
        "share": 1 / (1 - dropout),
        "heads": heads,
        "kv_heads": kv_heads,
        "num_rows": num_rows,
        "num_keys": num_keys,
        **dict(zip(("bias_batch", "bias_head", "bias_row", "bias_column"), bias_steps, strict=True)),
        "distance_head": 0 if distance is None else steps(distance)[0],
        "distance_first": distance_first,
    }
    switches = {
        "HEAD_DIM": head_dim,
        "VALUE_DIM": v.shape[-1],
        "BLOCK_DIM": max(16, triton.next_power_of_2(head_dim)),
        "BLOCK_VALUE": max(16, triton.next_power_of_2(v.shape[-1])),
        "CAUSAL": causal,
        "WINDOW": sliding_window,
        "HAS_BIAS": bias is not None,
        "HAS_DISTANCE": distance is not None,
        "HAS_PADDING": padding is not None,
        "DROPS": seed is not None,
        "UPCAST": INTERPRETED and q.dtype == torch.bfloat16,
    }
    return sizes, switches


def steps(tensor: Tensor) -> tuple[int, ...]:
    """Strides, zero along axes of one element: the kernel then reads that element for every index."""
    return tuple(0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
