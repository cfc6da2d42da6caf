"""Operations that only order, copy or select entries, on values and on weights; concatenation."""

from typing import Any

import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.actions.values import NOWHERE, Fixed, FreeShift, Square, State, Value, Weight

INDEXING = frozenset(
    {
        "view",
        "reshape",
        "_unsafe_view",
        "view_as",
        "unflatten",
        "flatten",
        "transpose",
        "swapaxes",
        "movedim",
        "permute",
    }
    | {
        "t",
        "mT",
        "adjoint",
        "unsqueeze",
        "squeeze",
        "expand",
        "expand_as",
        "broadcast_to",
        "repeat",
        "repeat_interleave",
    }
    | {"slice", "select", "narrow", "unbind", "split", "split_with_sizes", "tensor_split", "chunk", "hsplit"}
    | {"index", "index_select", "gather", "flip", "roll", "pad", "constant_pad_nd"}
    | {"alias", "clone", "detach", "contiguous", "lift_fresh_copy", "dropout"}
    | {"to", "_to_copy", "type_as", "float", "double"}
)
_LIKE = frozenset({"type_as", "expand_as", "view_as", "reshape_as"})
"""Operations that read the shape or type of their second tensor alone."""
_RESHAPED = frozenset({"view", "_unsafe_view"})


def reindexed(call: Call, tensor: Tensor) -> Any:
    """Apply an indexing operation to another tensor of the shape of its input."""
    if call.name in _RESHAPED:
        size: Any = call.named["size"]
        return tensor.reshape(size)
    if call.name in ("to", "_to_copy", "dropout", "type_as", "float", "double", "contiguous"):
        return tensor
    if call.name in ("pad", "constant_pad_nd") and call.named.get("value") not in (None, 0, 0.0):
        raise NoRule
    main = call.operands()[0]
    return call.run(lambda given: tensor if given is main else given.number)


@rule(*INDEXING)
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
    if isinstance(first.state, Square):
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
        shifts = tuple(FreeShift(group - 1, direction, sources) for group, direction, sources in free)
        return Value(value.space, torch.stack(forms, -1), datum - 1, shifts)
    return tuple(
        Value(
            value.space,
            torch.stack([each[at] for each in forms], -1),
            datum[at] - 1,
            tuple(FreeShift(group[at] - 1, direction[at], sources) for group, direction, sources in free),
        )
        for at in range(len(datum))
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


@rule("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like")
def filled(call: Call) -> State:
    """A tensor of the shape of another, whose numbers it does not read."""
    del call
    return Fixed(constant=True)


@rule("cat", "stack")
def concatenated(call: Call) -> State:
    """Concatenate forms of one space; several spaces become their direct sum."""
    parts: list[Operand] = list(call.named["tensors"])
    if all(isinstance(each.state, Weight) or each.constant for each in parts):
        ids = call.run(lambda each: _ids(each))
        return Weight(ids.numpy())
    values = [_as_value(call, each) for each in parts]
    spaces = list(dict.fromkeys(each.space for each in values if bool((each.datum != NOWHERE).any())))
    if len(spaces) > 1:
        values = _summed(call, values, spaces)
    else:
        values = [each if each.space is spaces[0] else _moved(each, spaces[0], 0, spaces[0].size) for each in values]
    by_part = dict(zip(map(id, parts), values, strict=True))

    def together(function: Any) -> Tensor:
        result: Tensor = call.run(lambda each: function(by_part[id(each)]))
        return result

    size = values[0].space.size
    forms = torch.stack([together(lambda each, k=k: each.forms[..., k]) for k in range(size)], -1)
    free = []
    for part in parts:
        for shift in by_part[id(part)].free:
            free.append(_extended(call, part, shift, {key: each.shape for key, each in by_part.items()}))
    return Value(values[0].space, forms, together(lambda each: each.datum), tuple(free))


def _extended(call: Call, part: Operand, shift: FreeShift, shapes: dict[int, torch.Size]) -> FreeShift:
    """The free shift of one part, in the whole."""

    def group(each: Operand) -> Tensor:
        return shift.group if each is part else torch.full(shapes[id(each)], NOWHERE)

    def direction(each: Operand) -> Tensor:
        return shift.direction if each is part else torch.zeros(shapes[id(each)], dtype=torch.float64)

    return FreeShift(call.run(group), call.run(direction), shift.sources)


def _ids(operand: Operand) -> Tensor:
    if isinstance(operand.state, Weight):
        return torch.from_numpy(operand.state.ids)
    return torch.full(operand.number.shape, -1, dtype=torch.int64)


def _as_value(call: Call, operand: Operand) -> Value:
    """A value of anything: weights are numbers of a space that only shifts, fixed tensors of one that stays."""
    state, shape = operand.state, operand.number.shape
    if isinstance(state, Value):
        return state
    if isinstance(state, Weight):
        ids, place = torch.from_numpy(state.ids).unique(return_inverse=True)
        space = call.system.space(len(ids), shift=ids.numpy(), linear=call.system.still(len(ids)).linear)
        forms = torch.nn.functional.one_hot(place.reshape(shape), len(ids)).double()
        return Value(space, forms, call.system.new_data(1).expand(shape))
    if not isinstance(state, Fixed):
        raise NoRule
    if operand.constant and not bool(operand.number.any()):
        return Value(call.system.still(1), torch.zeros(*shape, 1, dtype=torch.float64), torch.full(shape, NOWHERE))
    return still_vector(call, operand)


def still_vector(call: Call, operand: Operand) -> Value:
    """A fixed tensor as vectors, along its last axis, of a space that does not move."""
    shape = operand.number.shape
    space = call.system.still(shape[-1] if shape else 1)
    return call.system.vector(space, call.system.new_data(*shape[:-1]))


def _moved(value: Value, space: Any, start: int, size: int) -> Value:
    forms = torch.zeros(*value.shape, size, dtype=torch.float64)
    forms[..., start : start + value.space.size] = value.forms if value.space.size <= size else 0
    return Value(space, forms, value.datum, value.free)


def _summed(call: Call, values: list[Value], spaces: list[Any]) -> list[Value]:
    """The values over the direct sum of their spaces, with data identified that lie at the same places."""
    holders = [next(each for each in values if each.space is space) for space in spaces]
    joint = call.system.joined(holders)
    starts = dict(zip(spaces, [sum(each.size for each in spaces[:at]) for at in range(len(spaces))], strict=True))
    moved = [_moved(each, joint, starts.get(each.space, 0), joint.size) for each in values]
    axis = int(call.named.get("dim", 0))
    main = moved[0]
    result = [main]
    for each in moved[1:]:
        names = _identified(main.datum, each.datum, axis, stacked=call.name == "stack")
        result.append(each if names is None else Value(each.space, each.forms, names, each.free))
    return result


def _identified(first: Tensor, other: Tensor, axis: int, *, stacked: bool) -> Tensor | None:
    """`other` with the ids of `first` at the same places off the axis; None if these do not correspond one to one."""
    if stacked:
        one, two = first, other
    else:
        one, two = first.movedim(axis, -1), other.movedim(axis, -1)
        if bool((one != one[..., :1]).any()) or bool((two != two[..., :1]).any()):
            return None
        one, two = one[..., 0], two[..., 0]
    pairs = torch.stack([one.reshape(-1), two.reshape(-1)], 1)
    pairs = pairs[(pairs != NOWHERE).all(1)].unique(dim=0)
    if len(pairs[:, 0].unique()) != len(pairs) or len(pairs[:, 1].unique()) != len(pairs):
        return None
    table = dict(zip(pairs[:, 1].tolist(), pairs[:, 0].tolist(), strict=True))
    names = torch.tensor([table.get(each, each) for each in other.reshape(-1).tolist()], dtype=torch.int64)
    return names.reshape(other.shape)
