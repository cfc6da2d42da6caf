"""Rules for attention in one operation: fused, softmax(q k^T + mask) v, and flex, softmax(score_mod(q k^T) over the keys that
mask_mod leaves) v."""

from typing import Any

import torch

from addnorm.redundancy.execution.operation_names import MASKED
from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.rule import OpCall, default_rule, rule
from addnorm.redundancy.graph.rules.products import projection_off
from addnorm.redundancy.graph.shift import broadcast, times_matrix
from addnorm.redundancy.graph.value import NodeValue, Output, values_in

MASK = "every query may attend to at least one key (a fully masked row gives zero, not an average)"
_SUMS = (torch.ops.aten.add.Tensor, torch.ops.aten.add.Scalar)
_DIFFERENCES = (torch.ops.aten.sub.Tensor, torch.ops.aten.sub.Scalar)


def attention(
    call: OpCall,
    query: NodeValue,
    key: NodeValue,
    value: NodeValue,
    mask: NodeValue | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    enable_gqa: bool = False,
    **_: object,
) -> Output:
    """q (k + s)^T = q k^T + q s^T is constant along the keys if s is, and softmax cancels it. The weights sum to one,
    so a constant shift of v is preserved. A shift of q is multiplied by different keys and must vanish. With dropout or
    in a fully masked row the weights do not sum to one."""
    # Entries that were overwritten do not shift with the others of their row; those of the mask are a softmax's own.
    call.demand_unchanged(*(each for each in (query, key, value) if each.masked))
    query, key, value = (each.updated(call.current) for each in (query, key, value))
    # (q + s)(k + t)^T - q k^T = s k^T + (q + s) t^T. With t the same for all keys the second term is constant along the
    # keys. The first is so only if s has one product with all keys: if s is zero, or normal to a plane that holds them.
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
    # Weights that dropout thins, or a row without any key, do not sum to one: a constant shift of v comes through
    # scaled.
    if dropout > 0 or emptied:
        call.demand_unchanged(value)
        return call.unmoved()
    value = call.demand_constant_value(call.without_data_shifts(value), [-2])
    dims, shift = len(call.shape), value.shift
    if enable_gqa and len(value.shape) >= 3 and value.shape[-3] != query.shape[-3]:
        # A value head serves several query heads: the shift is repeated as the values are.
        heads = torch.arange(value.shape[-3]).repeat_interleave(query.shape[-3] // value.shape[-3])
        shift = selected(shift, len(value.shape) - 3, heads)
    one = selected(shift, len(value.shape) - 2, torch.tensor([0]))
    unit = reshaped(one, (1,) * (dims - len(one.shape)) + one.shape)
    return Output(broadcast(unit, call.shape))


# Not as a decorator, which would hide from type checkers that `flex_attention` gets one output.
rule("scaled_dot_product_attention", masks=True)(attention)


def _orthogonal(call: OpCall, query: NodeValue, key: NodeValue) -> None:
    """Restrict a shift of the query to the normals of a plane in which all keys lie: their product with every key is
    the same."""
    plane = key.plane
    if plane is None or not query.shift or plane.axis != len(key.shape) - 1 or not len(normals := plane.normals()):
        call.demand_unchanged(query)
        return
    call.without_data_shifts(query)
    # A shift in the span of the normals has a product with each key that is the same for all. What is left of it off
    # that span must vanish.
    call.demand_zero(times_matrix(call.current(query.shift), projection_off(normals), query.shape))


def _empty_row(mask: NodeValue) -> bool:
    """True if a known mask hides all keys from some query."""
    if mask.known is None:
        return False
    seen = mask.known if mask.known.dtype == torch.bool else mask.known > MASKED
    return not bool(seen.any(dim=-1).all())


@rule("flex_attention")
def flex_attention(
    call: OpCall,
    query: NodeValue,
    key: NodeValue,
    value: NodeValue,
    score_mod: object,
    block_mask: object,
    scale: float,
    options: object,
    *buffers: object,
) -> list[Output]:
    """A score_mod that adds numbers which do not depend on the score leaves constants along the keys as they are, and so does
    a mask: softmax cancels them as in fused attention. Any other score_mod, and a sum of exponentials that is read, count as
    unknown. A row whose keys are all masked gives zero."""
    read_alone = call.read is not None and call.read <= {0}
    if len(call.graphs) != 2 or not read_alone or not _adds(call.graphs[0]):
        return default_rule(call, query, key, value, block_mask, *buffers)
    call.demand_unchanged(*values_in([block_mask, *buffers]))
    if value.moves and not _is_constant(call.graphs[1]):
        call.assume(MASK)
    return [attention(call, query, key, value, enable_gqa=True), *call.all_unmoved()[1:]]


def _adds(score_mod: Any) -> bool:
    """True if the result is the score plus numbers that do not depend on it."""
    score = next(node for node in score_mod.graph.nodes if node.op == "placeholder")
    dependent = {score}
    for node in score_mod.graph.nodes:
        moving = [each for each in node.args if each in dependent] if node.op == "call_function" else []
        if not moving:
            continue
        # score + c and score - c keep a shift that is constant along the keys. In c - score it would be negated, which
        # softmax cancels as well, but no model needs it; alpha would scale it.
        is_sum = node.target in _SUMS and len(moving) == 1
        is_difference = node.target in _DIFFERENCES and len(moving) == 1 and node.args[0] in dependent
        if not (is_sum or is_difference) or (node.kwargs and node.args[1] in dependent):
            return False
        dependent.add(node)
    last = next(node for node in score_mod.graph.nodes if node.op == "output")
    results = last.all_input_nodes
    return len(results) == 1 and results[0] in dependent and _stays_in(dependent, last)


def _stays_in(nodes: set[Any], last: Any) -> bool:
    """True if nothing but these nodes and the output reads them."""
    return all(user is last or user in nodes for node in nodes for user in node.users)


def _is_constant(mask_mod: Any) -> bool:
    """True if the mask does not depend on the position."""
    places = [node for node in mask_mod.graph.nodes if node.op == "placeholder"]
    return all(user.op == "output" or not _reads(user) for place in places for user in place.users)


def _reads(node: Any) -> bool:
    """True if an operation reads the numbers of its arguments, not their shape alone."""
    return "new_" not in str(node.target) and "_like" not in str(node.target)
