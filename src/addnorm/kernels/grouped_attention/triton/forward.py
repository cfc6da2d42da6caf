"""The forward kernel: one program per block of query rows, streaming over the keys and, per tile, over the terms."""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import triton
import triton.language as tl

from addnorm.kernels.grouped_attention.triton.device import (
    attend_tile,
    end_of_keys,
    first_key,
    store_attended,
    summed_scores,
)


@triton.jit
def attend_rows(
    q, k, v, weights, bias, distance, padding, seed, out, log_sum,
    threshold, share, heads, kv_heads, num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, DROPS: tl.constexpr,
    CAPPED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Rows of out and log_sum of one (item, head), with every tile's scores summed over terms."""
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    q_rows = (slab.to(tl.int64) * num_rows) * HEAD_DIM
    kv_rows = (batch.to(tl.int64) * kv_heads + kv_head) * num_keys
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    rows_before = num_keys - num_rows

    top = tl.full((BLOCK_ROWS,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    total = tl.zeros((BLOCK_ROWS, BLOCK_VALUE), dtype=tl.float32)
    stop = end_of_keys(start, rows_before, num_keys, BLOCK_ROWS, CAUSAL)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        scores, _ = summed_scores(
            q + q_rows, k + kv_rows * HEAD_DIM, weights + slab * num_terms, bias, distance, padding,
            rows, columns, batch, head, num_terms, term_queries, term_keys, num_rows, num_keys,
            bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
            HEAD_DIM, BLOCK_DIM, CAUSAL, WINDOW, HAS_BIAS, HAS_DISTANCE, HAS_PADDING, CAPPED, UPCAST,
        )  # fmt: skip
        top, mass, total = attend_tile(
            scores, top, mass, total, v, kv_rows, rows, columns, num_keys, seed, batch, head, threshold, share,
            VALUE_DIM, BLOCK_VALUE, DROPS, UPCAST,
        )  # fmt: skip
    store_attended(out, log_sum, slab, rows, num_rows, top, mass, total, VALUE_DIM, BLOCK_VALUE)
