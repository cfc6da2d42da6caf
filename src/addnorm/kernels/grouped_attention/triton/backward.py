"""The backward kernels: one owns query rows, one owns keys, so that no sum depends on the order of programs.

Both compute a tile's scores again. The gradient of one term's rows stays in registers until its program ends (ALONE). Sums over
several terms at once would not fit there, so each program adds its products to its own rows of a float32 array in memory. Those
additions are atomic only in form: no two programs share an element, and their order within a program is fixed, so results are
the same every time. A load, a sum and a store instead would be wrong: two turns of the loop may give an element to different
threads, and only an atomic addition is seen by the others without a barrier.
"""

# Triton has no type information, and its compiler reads the signatures itself.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"

import triton
import triton.language as tl

from addnorm.kernels.grouped_attention.triton.device import (
    add_bias_gradient,
    end_of_keys,
    end_of_rows,
    first_key,
    first_row,
    kept,
    product,
    summed_scores,
)


@triton.jit
def tile_gradient(
    scores, log_sum, share_grad, delta, value, seed, batch, head, rows, columns, threshold, share,
    DROPS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """(probabilities as they met the values, gradient of the scores) of one tile."""
    # d softmax: dS = P ∘ (dP - Σ_k P dP). The sum over the keys of a row would need all of its tiles, but it is Σ grad ∘ out,
    # which the caller has as `delta`. Under dropout P in it is what met the values and P in front is not, so both masks below
    # are needed: leaving out either is right without dropout alone.
    # log_sum is that of the forward pass, so no maximum is needed here. A row that sees no key has log_sum 0 and scores of
    # minus infinity (`store_attended`): its probabilities are 0, where a log_sum of minus infinity would give NaN.
    probabilities = tl.exp(scores - log_sum[:, None])
    d_probabilities = product(share_grad, tl.trans(value), UPCAST)
    met = probabilities
    if DROPS:
        stays = kept(seed, batch, head, rows, columns, threshold)
        met = tl.where(stays, probabilities * share, 0.0)
        d_probabilities = tl.where(stays, d_probabilities * share, 0.0)
    return met, probabilities * (d_probabilities - delta[:, None])


@triton.jit(do_not_specialize=["num_terms"])
def differentiate_rows(
    q, k, v, weights, bias, distance, padding, seed, log_sum, delta, grad, d_q, d_bias, d_distance,
    threshold, share, heads, kv_heads, num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, DROPS: tl.constexpr,
    CAPPED: tl.constexpr, ALONE: tl.constexpr, UPCAST: tl.constexpr, BIAS_NEEDED: tl.constexpr,
):  # fmt: skip
    """U_i = dS K_i for every term into d_q (zeros before), and dS summed into the bias's gradient where asked for."""
    # A loop over one term, if it is known to be one, vanishes, and its queries stay in registers from tile to tile. In float32
    # they do not fit there, so that the compiler does not know it.
    if ALONE and q.dtype.element_ty != tl.float32:
        terms: tl.constexpr = 1
    else:
        terms = num_terms
    slab = tl.program_id(1)
    batch, head = slab // heads, slab % heads
    kv_head = head // (heads // kv_heads)
    q_rows = (slab.to(tl.int64) * num_rows) * HEAD_DIM
    kv_rows = (batch.to(tl.int64) * kv_heads + kv_head) * num_keys
    start = tl.program_id(0) * BLOCK_ROWS
    rows = start + tl.arange(0, BLOCK_ROWS)
    dims, values = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_VALUE)
    rows_before = num_keys - num_rows
    row_mask = rows < num_rows

    at_row = slab.to(tl.int64) * num_rows + rows
    row_log_sum = tl.load(log_sum + at_row, mask=row_mask, other=0.0)
    row_delta = tl.load(delta + at_row, mask=row_mask, other=0.0)
    value_mask = (values < VALUE_DIM)[None, :]
    row_grad = tl.load(
        grad + at_row[:, None] * VALUE_DIM + values[None, :], mask=row_mask[:, None] & value_mask, other=0.0
    )
    term_queries, term_keys = tl.cast(term_queries, tl.int64), tl.cast(term_keys, tl.int64)  # see summed_scores
    dim_mask = (dims < HEAD_DIM)[None, :]
    at_own = d_q + q_rows + rows[:, None] * HEAD_DIM + dims[None, :]
    own = tl.zeros((BLOCK_ROWS, BLOCK_DIM), dtype=tl.float32)
    # Keys beyond `stop` are seen by no row of the block; inside, what single rows do not see is -inf. `own` is whole after the
    # loop because every key of its rows is met here: that is why rows and keys have a kernel each.
    stop = end_of_keys(start, rows_before, num_keys, BLOCK_ROWS, CAUSAL)
    for key in range(first_key(start, rows_before, WINDOW, BLOCK_KEYS), stop, BLOCK_KEYS):
        columns = key + tl.arange(0, BLOCK_KEYS)
        scores, slope = summed_scores(
            q + q_rows, k + kv_rows * HEAD_DIM, weights + slab * terms, bias, distance, padding,
            rows, columns, batch, head, terms, term_queries, term_keys, num_rows, num_keys,
            bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
            HEAD_DIM, BLOCK_DIM, CAUSAL, WINDOW, HAS_BIAS, HAS_DISTANCE, HAS_PADDING, CAPPED, UPCAST,
        )  # fmt: skip
        column_mask = columns < num_keys
        at = v + kv_rows * VALUE_DIM + columns[:, None] * VALUE_DIM + values[None, :]
        value = tl.load(at, mask=column_mask[:, None] & value_mask, other=0.0)
        _, d_scores = tile_gradient(
            scores, row_log_sum, row_grad, row_delta, value, seed, batch, head, rows, columns, threshold, share,
            DROPS, UPCAST,
        )  # fmt: skip
        if BIAS_NEEDED:
            add_bias_gradient(
                d_bias, d_distance, d_scores, scores > float("-inf"), rows, columns, batch, head, rows_before,
                bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, HAS_BIAS, HAS_DISTANCE,
            )  # fmt: skip
        if CAPPED:  # after the bias, which is added to what the cap has bounded
            d_scores *= slope
        narrow = d_scores.to(value.dtype)
        at_key = k + kv_rows * HEAD_DIM + columns[:, None] * HEAD_DIM + dims[None, :]
        if ALONE:
            keys = tl.load(at_key, mask=column_mask[:, None] & dim_mask, other=0.0)
            own += product(narrow, keys, UPCAST)
        else:
            for term in range(terms):
                keys = tl.load(at_key + term * term_keys, mask=column_mask[:, None] & dim_mask, other=0.0)
                part = product(narrow, keys, UPCAST)
                tl.atomic_add(at_own + term * term_queries, part, mask=row_mask[:, None] & dim_mask, sem="relaxed")
    if ALONE:
        tl.store(at_own, own, mask=row_mask[:, None] & dim_mask)


@triton.jit
def differentiate_keys(
    q, k, v, weights, bias, distance, padding, seed, log_sum, delta, grad, d_k, d_v,
    threshold, share, heads, kv_heads, num_terms, term_queries, term_keys, num_rows, num_keys,
    bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_VALUE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_DISTANCE: tl.constexpr, HAS_PADDING: tl.constexpr, DROPS: tl.constexpr,
    CAPPED: tl.constexpr, ALONE: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """dV of one block of keys, and dK_i for every term into d_k (zeros before), over all query heads of the group."""
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
    at_value = kv_rows * VALUE_DIM + columns[:, None] * VALUE_DIM + values[None, :]
    value = tl.load(v + at_value, mask=column_mask[:, None] & value_mask, other=0.0)
    d_value = tl.zeros((BLOCK_KEYS, BLOCK_VALUE), dtype=tl.float32)
    term_queries, term_keys = tl.cast(term_queries, tl.int64), tl.cast(term_keys, tl.int64)  # see summed_scores
    dim_mask = (dims < HEAD_DIM)[None, :]
    at_own = d_k + kv_rows * HEAD_DIM + columns[:, None] * HEAD_DIM + dims[None, :]
    own = tl.zeros((BLOCK_KEYS, BLOCK_DIM), dtype=tl.float32)

    # Query heads of a group are met in one program, because they share the keys: split over programs, their sums would need
    # atomics on shared elements.
    begin = first_row(first, rows_before, BLOCK_ROWS, CAUSAL)
    stop = end_of_rows(first, rows_before, num_rows, WINDOW, BLOCK_KEYS)
    for member in range(group):
        head = kv_head * group + member
        q_slab = (batch * heads + head).to(tl.int64)
        for row in range(begin, stop, BLOCK_ROWS):
            rows = row + tl.arange(0, BLOCK_ROWS)
            row_mask = rows < num_rows
            at_row = q_slab * num_rows + rows
            scores, slope = summed_scores(
                q + q_slab * num_rows * HEAD_DIM, k + kv_rows * HEAD_DIM, weights + q_slab * num_terms,
                bias, distance, padding,
                rows, columns, batch, head, num_terms, term_queries, term_keys, num_rows, num_keys,
                bias_batch, bias_head, bias_row, bias_column, distance_head, distance_first, cap,
                HEAD_DIM, BLOCK_DIM, CAUSAL, WINDOW, HAS_BIAS, HAS_DISTANCE, HAS_PADDING, CAPPED, UPCAST,
            )  # fmt: skip
            row_grad = tl.load(
                grad + at_row[:, None] * VALUE_DIM + values[None, :], mask=row_mask[:, None] & value_mask, other=0.0
            )
            met, d_scores = tile_gradient(
                scores, tl.load(log_sum + at_row, mask=row_mask, other=0.0), row_grad,
                tl.load(delta + at_row, mask=row_mask, other=0.0), value, seed, batch, head, rows, columns,
                threshold, share, DROPS, UPCAST,
            )  # fmt: skip
            d_value += product(tl.trans(met).to(row_grad.dtype), row_grad, UPCAST)
            if CAPPED:
                d_scores *= slope
            narrow = tl.trans(d_scores).to(row_grad.dtype)
            at_query = q + q_slab * num_rows * HEAD_DIM + rows[:, None] * HEAD_DIM + dims[None, :]
            if ALONE:
                queries = tl.load(at_query, mask=row_mask[:, None] & dim_mask, other=0.0)
                own += tl.load(weights + q_slab) * product(narrow, queries, UPCAST)
            else:
                for term in range(num_terms):
                    queries = tl.load(at_query + term * term_queries, mask=row_mask[:, None] & dim_mask, other=0.0)
                    part = tl.load(weights + q_slab * num_terms + term) * product(narrow, queries, UPCAST)
                    tl.atomic_add(at_own + term * term_keys, part, mask=column_mask[:, None] & dim_mask, sem="relaxed")
    if ALONE:
        tl.store(at_own, own, mask=column_mask[:, None] & dim_mask)
    tl.store(d_v + at_value, d_value, mask=column_mask[:, None] & value_mask)
