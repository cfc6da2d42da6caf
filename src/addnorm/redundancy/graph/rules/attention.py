"""Rule for fused attention, softmax(q k^T + mask) v in one operation."""

import torch

from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.rule import Call, rule
from addnorm.redundancy.graph.rules.products import projection_off
from addnorm.redundancy.graph.shift import broadcast, times_matrix
from addnorm.redundancy.graph.value import Output, Value

MASK = "every query may attend to at least one key (a fully masked row gives zero, not an average)"


@rule("scaled_dot_product_attention")
def attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    enable_gqa: bool = False,
    **_: object,
) -> Output:
    """q (k + s)^T = q k^T + q s^T is constant along the keys if s is, and softmax cancels it. The weights sum to one,
    so a constant shift of v is preserved. A shift of q is multiplied by different keys and must vanish. With dropout or
    in a fully masked row the weights do not sum to one."""
    return attended(call, query, key, value, mask, dropout, enable_gqa=enable_gqa)


def attended(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    *,
    enable_gqa: bool = False,
) -> Output:
    """Shift of softmax(q k^T + mask) v, of whichever operation computes it; the proof is that of `attention`."""
    _orthogonal(call, query, key)
    call.demand_constant_value(key, [-2])
    emptied = False
    if mask is not None:
        if mask.seen_by_softmax:
            call.demand_unchanged(mask)
        elif mask.moves:
            call.demand_constant_value(mask, [-1])
        emptied = _empty_row(mask)
        if mask.known is None and value.moves:
            call.assume(MASK)
    if dropout > 0 or emptied:
        call.demand_unchanged(value)
        return call.unmoved()
    value = call.demand_constant_value(call.without_data_shifts(value), [-2])
    dims, shift = len(call.shape), value.shift
    if enable_gqa and len(value.shape) >= 3 and value.shape[-3] != query.shape[-3]:
        heads = torch.arange(value.shape[-3]).repeat_interleave(query.shape[-3] // value.shape[-3])
        shift = selected(shift, len(value.shape) - 3, heads)
    one = selected(shift, len(value.shape) - 2, torch.tensor([0]))
    unit = reshaped(one, (1,) * (dims - len(one.shape)) + one.shape)
    return Output(broadcast(unit, call.shape))


def _orthogonal(call: Call, query: Value, key: Value) -> None:
    """Restrict a shift of the query to the normals of a plane in which all keys lie: their product with every key is
    the same."""
    plane = key.plane
    if plane is None or not query.shift or plane.axis != len(key.shape) - 1 or not len(normals := plane.normals()):
        call.demand_unchanged(query)
        return
    call.without_data_shifts(query)
    call.demand_zero(times_matrix(call.current(query.shift), projection_off(normals), query.shape))


def _empty_row(mask: Value) -> bool:
    """True if a known mask hides all keys from some query."""
    if mask.known is None:
        return False
    seen = mask.known if mask.known.dtype == torch.bool else mask.known > -1e4
    return not bool(seen.any(dim=-1).all())
