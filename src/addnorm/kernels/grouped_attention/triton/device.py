"""Device functions of both passes for one tile: the summed scores with bias and masks, and dropout.

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
    if WINDOW:
        oldest = tl.maximum(row + rows_before - WINDOW + 1, 0)
        return oldest // BLOCK_KEYS * BLOCK_KEYS
    else:
        return 0


@triton.jit
def summed_scores(
    q, k, weights, bias, distance, padding,
    rows, columns, batch, head,
    num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Σ_i s_i Q_i K_iᵀ + bias of one tile, float32; what a row may not see is -inf.

    q and k point at this (item, head) in the first term; term_queries and term_keys are the steps to the next term.
    """
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
    if HAS_BIAS:
        inside = (rows < num_rows)[:, None] & (columns < num_keys)[None, :]
        at = bias + batch * bias_batch + head * bias_head
        at = at + rows.to(tl.int64)[:, None] * bias_row + columns.to(tl.int64)[None, :] * bias_column
        scores += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    seen = seen_keys(padding, rows, columns, batch, num_rows, num_keys, CAUSAL, WINDOW, HAS_PADDING)
    if HAS_DISTANCE:  # after the masks: the values need not know a distance that no row sees
        apart = (rows + (num_keys - num_rows))[:, None] - columns[None, :] - distance_first
        scores += tl.load(distance + head * distance_head + apart, mask=seen, other=0.0).to(tl.float32)
    return tl.where(seen, scores, float("-inf"))


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
