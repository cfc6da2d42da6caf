"""Concatenation: forms of one space, or of the direct sum of several."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.rules.attention import learned
from addnorm.symmetry.actions.rules.products import spread
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.actions.values import NOWHERE, Fixed, FreeShift, State, Value, Weight


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


@rule("copy")
def copied(call: Call) -> State:
    """The state of the tensor that is written over another one."""
    source, shape = call.operand("src"), call.result.shape
    if isinstance(source.state, Weight):
        return Weight(np.broadcast_to(source.state.ids, tuple(shape)))
    return spread(source.state, shape) if isinstance(source.state, Value) else source.state


@rule("slice_scatter")
def written_over(call: Call) -> State:
    """A tensor of which a range along one axis is written over: what is before, the range, what is behind."""
    whole, part = call.operand("self"), call.operand("src")
    axis = int(call.named.get("dim", 0)) % whole.number.dim()
    start, _, step = slice(*(call.named.get(name) for name in ("start", "end", "step"))).indices(
        whole.number.shape[axis]
    )
    if step != 1:
        raise NoRule
    return _written_over(call, whole, part, axis, start)


@rule("select_scatter")
def written_at(call: Call) -> State:
    """A tensor of which one place along an axis is written over."""
    whole, part = call.operand("self"), call.operand("src")
    axis = int(call.named["dim"]) % whole.number.dim()
    start = int(call.named["index"]) % whole.number.shape[axis]
    return _written_over(call, whole, part.rearranged(lambda tensor: tensor.unsqueeze(axis)), axis, start)


def _written_over(call: Call, whole: Operand, part: Operand, axis: int, start: int) -> State:
    stop = start + part.number.shape[axis]
    pieces = [_cut(whole, axis, 0, start), part, _cut(whole, axis, stop, whole.number.shape[axis])]
    named = {"tensors": [each for each in pieces if each.number.shape[axis]], "dim": axis}
    return concatenated(replace(call, target=torch.ops.aten.cat.default, named=named))


def _cut(operand: Operand, axis: int, start: int, stop: int) -> Operand:
    return operand.rearranged(lambda tensor: tensor.narrow(axis, start, stop - start))


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
    if isinstance(state, Weight) and shape[-1:] > (1,):
        # So a class token turns with the stream that it joins, and a learned key with those of the tokens.
        return learned(call.system, operand)
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
