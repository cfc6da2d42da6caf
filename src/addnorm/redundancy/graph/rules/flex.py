"""Rule for flex attention, softmax(score_mod(q k^T) over the keys that mask_mod leaves) v in one operation."""

from typing import Any

import torch

from addnorm.redundancy.graph.rule import Call, default_rule, rule, values_in
from addnorm.redundancy.graph.rules.attention import MASK, attended
from addnorm.redundancy.graph.value import Output, Value

_SUMS = (torch.ops.aten.add.Tensor, torch.ops.aten.add.Scalar)
_DIFFERENCES = (torch.ops.aten.sub.Tensor, torch.ops.aten.sub.Scalar)


@rule("flex_attention")
def flex_attention(
    call: Call,
    query: Value,
    key: Value,
    value: Value,
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
    return [attended(call, query, key, value, enable_gqa=True), *call.all_unmoved()[1:]]


def _adds(score_mod: Any) -> bool:
    """True if the result is the score plus numbers that do not depend on it."""
    score = next(node for node in score_mod.graph.nodes if node.op == "placeholder")
    dependent = {score}
    for node in score_mod.graph.nodes:
        moving = [each for each in node.args if each in dependent] if node.op == "call_function" else []
        if not moving:
            continue
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
