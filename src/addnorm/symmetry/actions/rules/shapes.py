"""Operations that only order, copy or select entries, on values and on weights; concatenation."""

from typing import Any

import torch
from torch import Tensor

from addnorm.redundancy.execution.operation_names import COPIES, PERMUTING, VIEWS
from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import Ids
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.actions.values import Fixed, FreeShift, Square, State, Value, Weight

INDEXING = frozenset(
    {"expand", "expand_as", "broadcast_to", "repeat", "repeat_interleave"}
    | {"slice", "select", "narrow", "unbind", "split", "split_with_sizes", "tensor_split", "chunk", "hsplit"}
    | {"index", "index_select", "gather", "flip", "roll", "pad", "constant_pad_nd"}
    | {"dropout"}
    | VIEWS
    | PERMUTING
    | COPIES
)
REORDERING = (INDEXING | {"cat"}) - {"index", "index_select", "gather", "pad", "constant_pad_nd"}
"""Operations that only order, copy or select numbers, in a way that the graph alone decides."""
_LIKE = frozenset({"type_as", "expand_as", "view_as", "reshape_as"})
"""Operations that read the shape or type of their second tensor alone."""
_RESHAPED = frozenset({"view", "_unsafe_view"})


def reindexed(call: Call, tensor: Tensor) -> Any:
    """Apply an indexing operation to another tensor of the shape of its input."""
    if call.name in _RESHAPED:
        size: Any = call.named["size"]
        return tensor.reshape(size)
    if call.name in ("to", "_to_copy", "dropout", "type_as", "contiguous"):
        return tensor
    if call.name in ("pad", "constant_pad_nd") and call.named.get("value") not in (None, 0, 0.0):
        raise NoRule
    main = call.operands()[0]
    if call.name == "im2col" and not tensor.is_floating_point():  # numbers of data are far below 2^53
        return reindexed(call, tensor.double()).to(tensor.dtype)
    return call.run(lambda given: tensor if given is main else given.number)


@rule(*INDEXING, "im2col")
def indexed(call: Call) -> State:
    """Reorder the entries."""
    first, *others = call.operands()
    if any(not each.constant for each in others) and call.name not in _LIKE and not _is_routing(call, first, others):
        raise NoRule
    if call.name == "dropout" and call.named.get("train"):
        raise NoRule
    if isinstance(first.state, Weight):
        ids = _each(reindexed(call, torch.from_numpy(first.state.ids) + 1), lambda part: part - 1)
        return _state(ids, lambda part: Weight(part.numpy()))
    if isinstance(first.state, Square) or (isinstance(first.state, Fixed) and call.name in _LIKE):
        return first.state
    if not isinstance(first.state, Value):
        raise NoRule
    value = first.state
    stacked = value.forms.movedim(-1, 0).contiguous()
    forms = [reindexed(call, each) for each in stacked]
    # One is added so that padding, which is zero, becomes NOWHERE.
    datum = reindexed(call, value.datum + 1)
    free = [(reindexed(call, each.group + 1), reindexed(call, each.direction), each.sources) for each in value.free]
    if isinstance(datum, Tensor):
        return Value(value.space, torch.stack(forms, -1), datum - 1, _reaching(free))
    return tuple(
        Value(
            value.space,
            torch.stack([each[at] for each in forms], -1),
            datum[at] - 1,
            _reaching([(group[at], direction[at], sources) for group, direction, sources in free]),
        )
        for at in range(len(datum))
    )


def _reaching(free: list[tuple[Tensor, Tensor, Ids]]) -> tuple[FreeShift, ...]:
    """The free shifts that move selected entries: one of a query's channels asks nothing of what reads the values."""
    return tuple(
        FreeShift(group - 1, direction, sources) for group, direction, sources in free if bool(direction.any())
    )


def _is_routing(call: Call, first: Operand, others: list[Operand]) -> bool:
    """True if rows are selected by the data, and every row has the same forms, so that it does not matter which are."""
    if call.name not in ("index", "index_select") or any(not isinstance(each.state, Fixed) for each in others):
        return False
    if isinstance(first.state, Weight):
        return True
    if not isinstance(first.state, Value) or first.state.datum.dim() < 2:
        return False
    forms = first.state.forms
    lead = len(call.named["indices"]) if call.name == "index" else int(call.named["dim"]) + 1
    rows = forms.reshape(-1, *forms.shape[lead:])
    return lead < forms.dim() - 1 and not bool((rows != rows[:1]).any())


def _each(made: Any, function: Any) -> Any:
    return function(made) if isinstance(made, Tensor) else [function(each) for each in made]


def _state(made: Any, function: Any) -> State:
    return function(made) if isinstance(made, Tensor) else tuple(function(each) for each in made)


FILLED = ("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")


@rule(*FILLED)
def filled(call: Call) -> State:
    """A tensor of the shape of another, whose numbers it does not read."""
    del call
    return Fixed(constant=True)


def still_vector(call: Call, operand: Operand) -> Value:
    """A fixed tensor as vectors, along its last axis, of a space that does not move."""
    shape = operand.number.shape
    space = call.system.still(shape[-1] if shape else 1)
    return call.system.vector(space, call.system.new_data(*shape[:-1]))
