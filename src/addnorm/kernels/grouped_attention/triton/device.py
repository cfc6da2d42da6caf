"""Device functions of both passes for one tile: scores with bias and masks, the running softmax, and dropout.

A tile is BLOCK_ROWS query rows × BLOCK_KEYS keys of one (item, head). Its scores are a sum over the terms of small
matrix products, so neither a tensor of the squared length nor one of the summed width exists.
"""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import triton
import triton.language as tl


@triton.jit
def first_key(row, rows_before, WINDOW: tl.constexpr, BLOCK_KEYS: tl.constexpr):
    """The block-aligned first key that a tile beginning at `row` may see."""
    # Aligned, so that tiles of all blocks of rows start at multiples of BLOCK_KEYS, where loads are aligned too. Keys before
    # the window are masked like all others.
    if WINDOW:
        oldest = tl.maximum(row + rows_before - WINDOW + 1, 0)
        return oldest // BLOCK_KEYS * BLOCK_KEYS
    else:
        return 0


@triton.jit
def end_of_keys(row, rows_before, num_keys, BLOCK_ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    """The end of the keys that a tile beginning at `row` may see."""
    if CAUSAL:
        return tl.minimum(num_keys, row + BLOCK_ROWS + rows_before)
    else:
        return num_keys


@triton.jit
def first_row(key, rows_before, BLOCK_ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    """The block-aligned first row that may see a block of keys beginning at `key`."""
    if CAUSAL:
        return tl.maximum(key - rows_before, 0) // BLOCK_ROWS * BLOCK_ROWS
    else:
        return 0


@triton.jit
def end_of_rows(key, rows_before, num_rows, WINDOW: tl.constexpr, BLOCK_KEYS: tl.constexpr):
    """The end of the rows that still see a block of keys beginning at `key`."""
    if WINDOW:
        return tl.minimum(num_rows, tl.maximum(key + BLOCK_KEYS + WINDOW - 1 - rows_before, 0))
    else:
        return num_rows


@triton.jit
def summed_scores(
    q, k, weights, bias, distance, padding,
    rows, columns, batch, head,
    num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
    HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, CAPPED: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """(scores of one tile, the cap's derivative there): cap(Σ_i s_i Q_i K_iᵀ) + bias, float32; what a row may not see is -inf.

    q and k point at this (item, head) in the first term; term_queries and term_keys are the steps to the next term. Without
    a cap the derivative is not to be read.
    """
    # The step between terms times the term passes 2³¹ at 8 sequences of 32 heads, 4096 positions and width 128 from the 16th
    # term on; a 32-bit product would wrap and read other terms' numbers.
    term_queries, term_keys = tl.cast(term_queries, tl.int64), tl.cast(term_keys, tl.int64)
    dims = tl.arange(0, BLOCK_DIM)
    row_mask = (rows < num_rows)[:, None] & (dims < HEAD_DIM)[None, :]
    key_mask = (dims < HEAD_DIM)[:, None] & (columns < num_keys)[None, :]
    q_at = rows[:, None] * HEAD_DIM + dims[None, :]
    k_at = dims[:, None] + columns[None, :] * HEAD_DIM
    scores = tl.zeros((rows.shape[0], columns.shape[0]), dtype=tl.float32)
    for term in range(num_terms):
        queries = tl.load(q + term * term_queries + q_at, mask=row_mask, other=0.0)
        keys = tl.load(k + term * term_keys + k_at, mask=key_mask, other=0.0)
        # The weight scales the product, not the operand: a narrow operand would be rounded once more.
        scores += tl.load(weights + term) * product(queries, keys, UPCAST)
    slope = scores
    if CAPPED:  # tanh(x) = 1 - 2 / (exp(2x) + 1), which is right where exp overflows
        bounded = 1.0 - 2.0 / (tl.exp(2.0 / cap * scores) + 1.0)
        slope = 1.0 - bounded * bounded
        scores = cap * bounded
    seen = seen_keys(padding, rows, columns, batch, num_rows, num_keys, CAUSAL, WINDOW, HAS_PADDING)
    scores = with_bias(
        scores, seen, bias, distance, rows, columns, batch, head, num_keys - num_rows,
        bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, HAS_BIAS, HAS_DISTANCE,
    )  # fmt: skip
    return tl.where(seen, scores, float("-inf")), slope


@triton.jit
def with_bias(
    scores, seen, bias, distance, rows, columns, batch, head, rows_before,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr,
):  # fmt: skip
    """Scores of one tile with the bias of the keys that are seen; a bias by distance need not know any other distance."""
    if HAS_BIAS:
        at = bias_places(bias, rows, columns, batch, head, bias_batch, bias_head, bias_row, bias_column)
        scores += tl.load(at, mask=seen, other=0.0).to(tl.float32)
    if HAS_DISTANCE:
        at = distance_places(distance, rows, columns, head, rows_before, distance_head, distance_first)
        scores += tl.load(at, mask=seen, other=0.0).to(tl.float32)
    return scores


@triton.jit
def add_bias_gradient(
    d_bias, d_distance, d_scores, seen, rows, columns, batch, head, rows_before,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr,
):  # fmt: skip
    """Add one tile's dS to the gradient of the bias."""
    if HAS_BIAS:
        at = bias_places(d_bias, rows, columns, batch, head, bias_batch, bias_head, bias_row, bias_column)
        tl.atomic_add(at, d_scores, mask=seen, sem="relaxed")
    if HAS_DISTANCE:
        at = distance_places(d_distance, rows, columns, head, rows_before, distance_head, distance_first)
        tl.atomic_add(at, d_scores, mask=seen, sem="relaxed")


@triton.jit
def bias_places(bias, rows, columns, batch, head, bias_batch, bias_head, bias_row, bias_column):
    """Pointers to a tile's entries of a matrix of biases."""
    # One head's matrix may have 2³¹ / heads entries and more, so every factor but the last is 64 bits wide.
    at = bias + tl.cast(batch, tl.int64) * bias_batch + tl.cast(head, tl.int64) * bias_head
    return at + rows.to(tl.int64)[:, None] * bias_row + columns.to(tl.int64)[None, :] * bias_column


@triton.jit
def distance_places(distance, rows, columns, head, rows_before, distance_head, distance_first):
    """Pointers to a tile's entries of biases by distance."""
    return distance + head * distance_head + (rows + rows_before)[:, None] - columns[None, :] - distance_first


@triton.jit
def attend_tile(
    scores, top, mass, attended, v, kv_rows, rows, columns, num_keys, seed, batch, head, threshold, share,
    VALUE_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr, DROPS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """(largest score, sum of exponentials, attended values) with one more tile: Milakov and Gimelshein 2018's running softmax.

    Source: Dao 2023, arXiv:2307.08691, algorithm 1.
    """
    higher = tl.maximum(top, tl.max(scores, 1))
    # Of a tile's weights exp(score - higher) none exceeds 1, and what earlier tiles added is rescaled to the new maximum:
    # without it a score above 88 would be infinite in float32.
    finite = tl.where(higher == float("-inf"), 0.0, higher)  # a row without a key yet: -inf - -inf is no number
    probabilities = tl.exp(scores - finite[:, None])
    shrink = tl.exp(top - finite)
    mass = mass * shrink + tl.sum(probabilities, 1)
    if DROPS:
        probabilities = tl.where(kept(seed, batch, head, rows, columns, threshold), probabilities * share, 0.0)
    values = tl.arange(0, BLOCK_VALUE)
    at = v + (kv_rows + columns)[:, None] * VALUE_DIM + values[None, :]
    value = tl.load(at, mask=(columns < num_keys)[:, None] & (values < VALUE_DIM)[None, :], other=0.0)
    return higher, mass, attended * shrink[:, None] + product(probabilities.to(value.dtype), value, UPCAST)


@triton.jit
def store_attended(
    out, log_sum, slab, rows, num_rows, top, mass, attended, VALUE_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr
):
    """Write the attended values and the log-sum-exp of the rows; a row without keys attends to zero."""
    values = tl.arange(0, BLOCK_VALUE)
    alive = mass > 0
    mass = tl.where(alive, mass, 1.0)
    row_mask = rows < num_rows
    at_row = slab.to(tl.int64) * num_rows + rows
    result = (attended / mass[:, None]).to(out.dtype.element_ty)
    at = out + at_row[:, None] * VALUE_DIM + values[None, :]
    tl.store(at, result, mask=row_mask[:, None] & (values < VALUE_DIM)[None, :])
    tl.store(log_sum + at_row, tl.where(alive, top, 0.0) + tl.log(mass), mask=row_mask)


@triton.jit
def seen_keys(
    padding, rows, columns, batch, num_rows, num_keys,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, HAS_PADDING: tl.constexpr,
):  # fmt: skip
    """True where a row of the tile may see a key."""
    positions = rows + (num_keys - num_rows)
    seen = (rows < num_rows)[:, None] & (columns < num_keys)[None, :]
    if CAUSAL:
        seen &= columns[None, :] <= positions[:, None]
    if WINDOW:
        seen &= columns[None, :] > positions[:, None] - WINDOW
    if HAS_PADDING:
        real = tl.load(padding + batch * num_keys + columns, mask=columns < num_keys, other=0)
        seen &= (real != 0)[None, :]
    return seen


@triton.jit
def product(left, right, UPCAST: tl.constexpr):
    """left @ right with a float32 sum; float32 operands are not rounded to a narrower type on the way."""
    if UPCAST:  # Triton's interpreter holds bfloat16 as bare integers and would multiply those.
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, input_precision="ieee", out_dtype=tl.float32)


@triton.jit
def kept(seed, batch, head, rows, columns, threshold):
    """True where a probability stays: the hash of ../dropout.py in unsigned 32-bit words."""
    value = tl.load(seed)
    word = mixed((value & 0xFFFFFFFF).to(tl.uint32), 0) ^ ((value >> 32) & 0xFFFFFFFF).to(tl.uint32)
    word = mixed(mixed(mixed(word, 0) + batch.to(tl.uint32), 0) + head.to(tl.uint32), 0)
    first = mixed(word + rows.to(tl.uint32), 0)
    second = mixed(first ^ 0x68E31DA4, 0)
    hashed = mixed(first[:, None] + columns.to(tl.uint32)[None, :] * 0x9E3779B9, second[:, None])
    return hashed >= threshold.to(tl.uint32)


@triton.jit
def mixed(word, key):
    """The finaliser of ../dropout.py."""
    word = word.to(tl.uint32)
    word = (word ^ (word >> 16)) * 0x7FEB352D
    word = (word.to(tl.uint32) ^ (word.to(tl.uint32) >> 15) ^ key) * 0x846CA68B
    word = word.to(tl.uint32)
    return word ^ (word >> 16)
