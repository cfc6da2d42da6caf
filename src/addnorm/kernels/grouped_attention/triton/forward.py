"""The forward kernel: one program per block of query rows, streaming over the keys and, per tile, over the terms."""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import triton
import triton.language as tl

from addnorm.kernels.grouped_attention.triton.device import first_key, kept, product, summed_scores


@triton.jit
def attend_rows(
    q, k, v, weights, bias, distance, padding, seed, out, log_sum,
    threshold, share, heads, kv_heads, num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, DROPS: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """Rows of out and log_sum of one (item, head): the running-maximum softmax of Milakov and Gimelshein 2018.

    Source: Dao 2023, arXiv:2307.08691, algorithm 1, with the tile's scores summed over terms.
    """
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    q_rows = (slab.to(tl.int64) * num_rows) * HEAD_DIM
    kv_rows = (batch.to(tl.int64) * kv_heads + kv_head) * num_keys
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    values = tl.arange(0, BLOCK_VALUE)
    rows_before = num_keys - num_rows

    top = tl.full((BLOCK_ROWS,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    total = tl.zeros((BLOCK_ROWS, BLOCK_VALUE), dtype=tl.float32)
    stop = num_keys
    if CAUSAL:
        stop = tl.minimum(num_keys, start + BLOCK_ROWS + rows_before)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        scores = summed_scores(
            q + q_rows, k + kv_rows * HEAD_DIM, weights + slab * num_terms, bias, distance, padding,
            rows, columns, batch, head, num_terms, term_queries, term_keys, num_rows, num_keys,
            bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
            HEAD_DIM, BLOCK_DIM, CAUSAL, WINDOW, HAS_BIAS, HAS_DISTANCE, HAS_PADDING, UPCAST,
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)  # a row without a key yet: -inf - -inf is no number
        probabilities = tl.exp(scores - finite[:, None])
        shrink = tl.exp(top - finite)
        mass = mass * shrink + tl.sum(probabilities, 1)
        if DROPS:
            probabilities = tl.where(kept(seed, batch, head, rows, columns, threshold), probabilities * share, 0.0)
        at = v + kv_rows * VALUE_DIM + columns[:, None] * VALUE_DIM + values[None, :]
        value = tl.load(at, mask=(columns < num_keys)[:, None] & (values < VALUE_DIM)[None, :], other=0.0)
        total = total * shrink[:, None] + product(probabilities.to(value.dtype), value, UPCAST)
        top = higher

    alive = mass > 0
    mass = tl.where(alive, mass, 1.0)
    row_mask = rows < num_rows
    at = out + (slab.to(tl.int64) * num_rows + rows)[:, None] * VALUE_DIM + values[None, :]
    tl.store(at, (total / mass[:, None]).to(out.dtype.element_ty), row_mask[:, None] & (values < VALUE_DIM)[None, :])
    tl.store(log_sum + slab.to(tl.int64) * num_rows + rows, tl.where(alive, top, 0.0) + tl.log(mass), mask=row_mask)
