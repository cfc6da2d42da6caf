"""The kernels of the running sum: a layer adds its product to scores in memory, and takes it out again on the way back.

Scores of one (item, head) lie in blocks of BLOCK_ROWS query rows, one after another; a block is as wide as the keys that its
last row may see. One program owns query rows or keys, as in backward.py, so no sum depends on the order of programs. Formulas:
../kept_scores.
"""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import triton
import triton.language as tl

from addnorm.kernels.grouped_attention.triton.backward import tile_gradient
from addnorm.kernels.grouped_attention.triton.device import (
    add_bias_gradient,
    attend_tile,
    end_of_keys,
    end_of_rows,
    first_key,
    first_row,
    kept,
    product,
    seen_keys,
    store_attended,
    summed_scores,
    with_bias,
)


@triton.jit
def _places(
    slab, start, rows, columns, slab_entries, num_rows, num_keys, BLOCK_ROWS: tl.constexpr, CAUSAL: tl.constexpr
):
    """(places of a tile's scores in the flat buffer, True where it has one), for the block of rows that begins at `start`."""
    # The places are those of packed.slab_entries: what is written here and what is reserved there must agree for every block,
    # or a head would write into the next one's. All layers of a model, forward and backward, must use one BLOCK_ROWS.
    block = tl.cast(start // BLOCK_ROWS, tl.int64)
    if CAUSAL:
        # Block j is BLOCK_ROWS high and before + (j + 1) · BLOCK_ROWS wide, so block b begins at the sum over j < b. Only the
        # last block may be cut off by num_keys, and nothing begins after it.
        before = num_keys - num_rows
        begin = BLOCK_ROWS * (block * before + BLOCK_ROWS * (block * (block + 1) // 2))
    else:
        begin = block * BLOCK_ROWS * num_keys
    width = end_of_keys(start, num_keys - num_rows, num_keys, BLOCK_ROWS, CAUSAL)
    inside = (rows < num_rows)[:, None] & (columns < width)[None, :]
    return slab.to(tl.int64) * slab_entries + begin + (rows - start)[:, None] * width + columns[None, :], inside


@triton.jit
def _weighted(
    held, ratio, bias, distance, rows, columns, batch, head, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr,
):  # fmt: skip
    """A layer's scores from a tile of the sum: times `ratio`, with bias; -inf stays."""
    # The sum carries the mask: -inf where a row does not see a key, from the first layer on. What is added to it or multiplied
    # must keep that: -inf + x and -inf · positive do, -inf · 0 is NaN and -inf · negative is +inf.
    seen = held > float("-inf")
    scores = held
    if SCALED:  # -inf times a ratio that is zero or negative would not stay
        scores = tl.where(seen, tl.where(seen, held, 0.0) * ratio, float("-inf"))
    return with_bias(
        scores, seen, bias, distance, rows, columns, batch, head, num_keys - num_rows,
        bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, HAS_BIAS, HAS_DISTANCE,
    )  # fmt: skip


@triton.jit
def _ratio(at, SCALED: tl.constexpr):
    """The layer's scores as a multiple of what the buffer holds; read from memory, where alone a learned weight is known."""
    return tl.load(at) if SCALED else 1.0


@triton.jit
def sum_terms(
    q, k, weights, padding, total,
    heads, kv_heads, num_terms, term_queries, term_keys, num_rows, num_keys, slab_entries,
    HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, HAS_PADDING: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The sum of all terms so far, masked, written over whatever the buffer held."""
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    rows_before = num_keys - num_rows
    stop = end_of_keys(start, rows_before, num_keys, BLOCK_ROWS, CAUSAL)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        scores, _ = summed_scores(
            q + slab.to(tl.int64) * num_rows * HEAD_DIM,
            k + (batch.to(tl.int64) * kv_heads + kv_head) * num_keys * HEAD_DIM,
            weights + slab * num_terms, q, q, padding, rows, columns, batch, head,
            num_terms, term_queries, term_keys, num_rows, num_keys, 0, 0, 0, 0, 0, 0, 1.0,
            HEAD_DIM, BLOCK_DIM, CAUSAL, WINDOW, False, False, HAS_PADDING, False, UPCAST,
        )  # fmt: skip
        places, inside = _places(slab, start, rows, columns, slab_entries, num_rows, num_keys, BLOCK_ROWS, CAUSAL)
        tl.store(total + places, scores, mask=inside)


@triton.jit
def attend_sum(
    q, k, v, total, bias, distance, padding, seed, ratio_at, out, log_sum,
    alpha, beta,
    threshold, share, heads, kv_heads, num_rows, num_keys, slab_entries,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, DROPS: tl.constexpr,
    UPCAST: tl.constexpr, SCALED: tl.constexpr, ADDS: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Rows of out and log_sum of one (item, head), from the sum with this layer's product: S <- beta S + alpha Q K^T.

    Without ADDS the sum has the product already. FIRST writes and masks the sum instead of reading it.
    """
    ratio = _ratio(ratio_at, SCALED)
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    kv_rows = (batch.to(tl.int64) * kv_heads + kv_head) * num_keys
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    dims = tl.arange(0, BLOCK_DIM)
    rows_before = num_keys - num_rows
    row_mask = rows < num_rows
    at_query = q + (slab.to(tl.int64) * num_rows + rows)[:, None] * HEAD_DIM + dims[None, :]
    queries = tl.load(at_query, mask=row_mask[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)

    top = tl.full((BLOCK_ROWS,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    attended = tl.zeros((BLOCK_ROWS, BLOCK_VALUE), dtype=tl.float32)
    stop = end_of_keys(start, rows_before, num_keys, BLOCK_ROWS, CAUSAL)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        column_mask = columns < num_keys
        places, inside = _places(slab, start, rows, columns, slab_entries, num_rows, num_keys, BLOCK_ROWS, CAUSAL)
        if ADDS:
            at_key = k + (kv_rows + columns)[None, :] * HEAD_DIM + dims[:, None]
            keys = tl.load(at_key, mask=(dims < HEAD_DIM)[:, None] & column_mask[None, :], other=0.0)
            held = alpha * product(queries, keys, UPCAST)
            if FIRST:
                seen = seen_keys(
                    padding, rows, columns, batch, num_rows, num_keys, CAUSAL, WINDOW, HAS_PADDING
                )  # fmt: skip
                held = tl.where(seen, held, float("-inf"))
            else:
                held += beta * tl.load(total + places, mask=inside, other=float("-inf"))
            tl.store(total + places, held, mask=inside)
        else:
            held = tl.load(total + places, mask=inside, other=float("-inf"))
        scores = _weighted(
            held, ratio, bias, distance, rows, columns, batch, head, num_rows, num_keys,
            bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, SCALED, HAS_BIAS, HAS_DISTANCE,
        )  # fmt: skip
        top, mass, attended = attend_tile(
            scores, top, mass, attended, v, kv_rows, rows, columns, num_keys, seed, batch, head, threshold, share,
            VALUE_DIM, BLOCK_VALUE, DROPS, UPCAST,
        )  # fmt: skip
    store_attended(out, log_sum, slab, rows, num_rows, top, mass, attended, VALUE_DIM, BLOCK_VALUE)


@triton.jit
def differentiate_sum_rows(
    k, v, total, gradient, bias, distance, seed, ratio_at, log_sum, delta, grad, d_q, d_bias, d_distance, d_weight,
    alpha, above,
    threshold, share, heads, kv_heads, num_rows, num_keys, slab_entries,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, DROPS: tl.constexpr,
    UPCAST: tl.constexpr, SCALED: tl.constexpr, HAS_GRAD: tl.constexpr, HAS_ABOVE: tl.constexpr,
    BIAS_NEEDED: tl.constexpr, WEIGHT_NEEDED: tl.constexpr,
):  # fmt: skip
    """G <- ratio dS + above G and dQ = alpha G K of one block of rows; each block's share of sum(dS * S); dS into the bias."""
    ratio = _ratio(ratio_at, SCALED)
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    kv_rows = (batch.to(tl.int64) * kv_heads + kv_head) * num_keys
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    dims, values = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE)
    rows_before = num_keys - num_rows
    row_mask = rows < num_rows
    value_mask = (values < VALUE_DIM)[None, :]
    at_row = slab.to(tl.int64) * num_rows + rows
    row_log_sum = tl.load(log_sum + at_row, mask=row_mask, other=0.0)
    row_delta = tl.load(delta + at_row, mask=row_mask, other=0.0)
    at_grad = grad + at_row[:, None] * VALUE_DIM + values[None, :]
    row_grad = tl.load(at_grad, mask=row_mask[:, None] & value_mask, other=0.0)
    d_queries = tl.zeros((BLOCK_ROWS, BLOCK_DIM), dtype=tl.float32)
    of_weight = tl.zeros((BLOCK_ROWS,), dtype=tl.float32)
    stop = end_of_keys(start, rows_before, num_keys, BLOCK_ROWS, CAUSAL)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        column_mask = columns < num_keys
        places, inside = _places(slab, start, rows, columns, slab_entries, num_rows, num_keys, BLOCK_ROWS, CAUSAL)
        at_key = k + (kv_rows + columns)[:, None] * HEAD_DIM + dims[None, :]
        keys = tl.load(at_key, mask=column_mask[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
        # G of every place is written, also where this layer adds nothing: the buffer is not cleared between steps, and the
        # kernel of the keys reads all of it. It must run after this one, as the stream's order has it.
        carried = tl.zeros((BLOCK_ROWS, BLOCK_KEYS), dtype=tl.float32)
        if HAS_ABOVE:
            carried = above * tl.load(gradient + places, mask=inside, other=0.0)
        if HAS_GRAD:
            held = tl.load(total + places, mask=inside, other=float("-inf"))
            scores = _weighted(
                held, ratio, bias, distance, rows, columns, batch, head, num_rows, num_keys, bias_batch, bias_head,
                bias_row, bias_column, distance_head, distance_first, SCALED, HAS_BIAS, HAS_DISTANCE,
            )  # fmt: skip
            at_value = v + (kv_rows + columns)[:, None] * VALUE_DIM + values[None, :]
            value = tl.load(at_value, mask=column_mask[:, None] & value_mask, other=0.0)
            _, d_scores = tile_gradient(
                scores, row_log_sum, row_grad, row_delta, value, seed, batch, head, rows, columns, threshold, share,
                DROPS, UPCAST,
            )  # fmt: skip
            seen = held > float("-inf")
            if WEIGHT_NEEDED:
                of_weight += tl.sum(d_scores * tl.where(seen, held, 0.0), 1)
            if BIAS_NEEDED:
                add_bias_gradient(
                    d_bias, d_distance, d_scores, seen, rows, columns, batch, head, rows_before,
                    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, HAS_BIAS, HAS_DISTANCE,
                )  # fmt: skip
            carried += ratio * d_scores
        tl.store(gradient + places, carried, mask=inside)
        d_queries += product(carried.to(keys.dtype), keys, UPCAST)
    at_query = d_q + at_row[:, None] * HEAD_DIM + dims[None, :]
    tl.store(at_query, alpha * d_queries, mask=row_mask[:, None] & (dims < HEAD_DIM)[None, :])
    if WEIGHT_NEEDED:
        tl.store(d_weight + slab * tl.num_programs(0) + tl.program_id(0), tl.sum(of_weight, 0))


@triton.jit
def differentiate_sum_keys(
    q, k, v, total, gradient, bias, distance, seed, ratio_at, log_sum, grad, d_k, d_v,
    alpha, below,
    threshold, share, heads, kv_heads, num_rows, num_keys, slab_entries,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, DROPS: tl.constexpr,
    UPCAST: tl.constexpr, SCALED: tl.constexpr, HAS_GRAD: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """dV and dK = alpha G^T Q of one block of keys, over the heads of its group; S <- below (S - alpha Q K^T) unless LAST."""
    ratio = _ratio(ratio_at, SCALED)
    slab = tl.program_id(1)
    batch, kv_head = slab // kv_heads, slab % kv_heads
    group = heads // kv_heads
    kv_rows = slab.to(tl.int64) * num_keys
    first = tl.program_id(0) * BLOCK_KEYS
    columns = first + tl.arange(0, BLOCK_KEYS)
    dims, values = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE)
    rows_before = num_keys - num_rows
    column_mask = columns < num_keys
    value_mask = (values < VALUE_DIM)[None, :]
    dim_mask = dims < HEAD_DIM
    PART: tl.constexpr = min(BLOCK_DIM, 32)
    d_value = tl.zeros((BLOCK_KEYS, BLOCK_VALUE), dtype=tl.float32)
    d_keys = tl.zeros((BLOCK_KEYS, BLOCK_DIM), dtype=tl.float32)

    begin = first_row(first, rows_before, BLOCK_ROWS, CAUSAL)
    stop = end_of_rows(first, rows_before, num_rows, WINDOW, BLOCK_KEYS)
    for member in range(group):
        head = kv_head * group + member
        q_slab = (batch * heads + head).to(tl.int64)
        for row in range(begin, stop, BLOCK_ROWS):
            rows = row + tl.arange(0, BLOCK_ROWS)
            row_mask = rows < num_rows
            at_row = q_slab * num_rows + rows
            places, inside = _places(q_slab, row, rows, columns, slab_entries, num_rows, num_keys, BLOCK_ROWS, CAUSAL)
            at_query = q + at_row[:, None] * HEAD_DIM + dims[None, :]
            queries = tl.load(at_query, mask=row_mask[:, None] & dim_mask[None, :], other=0.0)
            carried = tl.load(gradient + places, mask=inside, other=0.0)
            d_keys += product(tl.trans(carried).to(queries.dtype), queries, UPCAST)
            held = tl.load(total + places, mask=inside, other=float("-inf"))
            if HAS_GRAD:
                scores = _weighted(
                    held, ratio, bias, distance, rows, columns, batch, head, num_rows, num_keys, bias_batch, bias_head,
                    bias_row, bias_column, distance_head, distance_first, SCALED, HAS_BIAS, HAS_DISTANCE,
                )  # fmt: skip
                met = tl.exp(scores - tl.load(log_sum + at_row, mask=row_mask, other=0.0)[:, None])
                if DROPS:
                    met = tl.where(kept(seed, batch, head, rows, columns, threshold), met * share, 0.0)
                at_grad = grad + at_row[:, None] * VALUE_DIM + values[None, :]
                row_grad = tl.load(at_grad, mask=row_mask[:, None] & value_mask, other=0.0)
                d_value += product(tl.trans(met).to(row_grad.dtype), row_grad, UPCAST)
            if not LAST:
                # Both factors are read again, 32 entries of a head at a time. Queries that serve two products, as left and as
                # right factor, would be in registers in two arrangements, and keys that were loaded before the loop in every
                # warp: kilobytes of each thread were spilled. The compiler unrolls a constant loop, which would undo this.
                own = tl.zeros((BLOCK_ROWS, BLOCK_KEYS), dtype=tl.float32)
                for begin_dim in tl.range(0, HEAD_DIM, PART, num_stages=1, loop_unroll_factor=1):
                    some = begin_dim + tl.arange(0, PART)
                    at_left = q + at_row[:, None] * HEAD_DIM + some[None, :]
                    left = tl.load(at_left, mask=row_mask[:, None] & (some < HEAD_DIM)[None, :], other=0.0)
                    at_right = k + (kv_rows + columns)[None, :] * HEAD_DIM + some[:, None]
                    right = tl.load(at_right, mask=(some < HEAD_DIM)[:, None] & column_mask[None, :], other=0.0)
                    own += product(left, right, UPCAST)
                tl.store(total + places, below * (held - alpha * own), mask=inside)
    at_d_key = d_k + (kv_rows + columns)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(at_d_key, alpha * d_keys, mask=column_mask[:, None] & dim_mask[None, :])
    at_d_value = d_v + (kv_rows + columns)[:, None] * VALUE_DIM + values[None, :]
    tl.store(at_d_value, d_value, mask=column_mask[:, None] & value_mask)
