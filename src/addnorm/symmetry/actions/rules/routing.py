"""Experts: rows of data that each meet one of several matrices, chosen by the data.

Rows are sorted by expert, multiplied in groups, and put back. Between the products, every operation that acts row by row
acts on each expert's rows alone, so that a scale of one expert's unit has nothing to do with another's. Where rows come
together again, all experts' results must have one action, and their shifts vanish, because the weights of the chosen experts
are data.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.rules.linear import mapped, weight_ids
from addnorm.symmetry.actions.system import NoRule, System
from addnorm.symmetry.actions.values import Fixed, Routed, State, Value, Weight

GROUPED = ("transformers::grouped_mm_fallback", "_grouped_mm", "grouped_mm")
_BY_ROW = frozenset(
    {"split", "split_with_sizes", "chunk", "slice", "silu", "gelu", "relu", "leaky_relu", "sigmoid", "tanh", "clamp"}
    | {"mul", "add", "sub", "neg", "div", "to", "_to_copy", "contiguous", "alias", "clone"}
)


@rule(*GROUPED)
def grouped(call: Call) -> State:
    """Rows in groups, each times a matrix of its own: x [row, d], W [expert, d, f], and where each group ends."""
    data, weight, ends = call.operands()[:3]
    if weight.number.dim() != 3 or not isinstance(weight.state, Weight) or ends.number.dim() != 1:
        raise NoRule
    stops = ends.number.long().tolist()
    starts = [0, *stops[:-1]]
    if len(stops) != len(weight.number) or any(start >= stop for start, stop in zip(starts, stops, strict=True)):
        raise NoRule  # an expert without a row: nothing would be required of its weights
    ids = torch.from_numpy(weight_ids(weight))
    parts: list[tuple[Tensor, State]] = []
    for expert, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        rows = torch.arange(start, stop)
        matrix = Operand(weight.number[expert].T, Weight(ids[expert].T.numpy()))
        parts.append((rows, mapped(call.system, _rows(data, rows, expert), matrix, None)))
    return Routed(tuple(parts))


def by_route(call: Call, apply: Callable[[Call], State]) -> State:
    """Apply an operation to every expert's rows alone if it acts row by row; else bring the rows together first."""
    operands = call.operands()
    routed = next(each.state for each in operands if isinstance(each.state, Routed))
    count = sum(len(rows) for rows, _ in routed.parts)
    along = call.named.get("dim", -1)
    if call.name not in _BY_ROW or (call.name in ("split", "split_with_sizes", "chunk", "slice") and along == 0):
        together = {id(each): merged(call.system, each) for each in operands if isinstance(each.state, Routed)}
        return apply(replace(call, named=_replaced(call.named, lambda each: together.get(id(each), each))))
    made: list[tuple[Tensor, State]] = []
    for expert, (rows, _) in enumerate(routed.parts):

        def own(each: Operand, rows: Tensor = rows, expert: int = expert) -> Operand:
            return _rows(each, rows, expert) if each.number.dim() > 1 and len(each.number) == count else each

        result = _result_rows(call.result, rows)
        try:
            state = apply(replace(call, named=_replaced(call.named, own), result=result))
        except NoRule:
            for each in operands:
                stopped = own(each).state
                if isinstance(stopped, Value):
                    call.system.stop(stopped)
                elif isinstance(stopped, Weight):
                    call.system.equations.vanish(stopped.ids)
            state = Fixed(constant=False)
        made.append((rows, state))
    if isinstance(call.result, Tensor):
        return Routed(tuple(made))
    pieces = len(call.result)
    return tuple(
        Routed(tuple((rows, each[at] if isinstance(each, tuple) else each) for rows, each in made))
        for at in range(pieces)
    )


def merged(system: System, operand: Operand) -> Operand:
    """All experts' rows as one value.

    Raises:
        NoRule: some do not move, or they have different numbers of entries.
    """
    if not isinstance(operand.state, Routed):
        return operand
    values = [(rows, each) for rows, each in operand.state.parts if isinstance(each, Value)]
    if not values or len(values) < len(operand.state.parts):
        for _, each in values:
            system.stop(each)
        return Operand(operand.number, Fixed(constant=False))
    for _, each in values:
        system.drop(each)
        system.equations.vanish(each.space.shift)
    whole = [(rows, system.whole(each.with_free(()))) for rows, each in values]
    first = whole[0][1]
    forms = torch.zeros(*operand.number.shape, first.space.size, dtype=torch.float64)
    datum = torch.zeros(operand.number.shape, dtype=torch.int64)
    for rows, each in whole:
        if each.space.size != first.space.size:
            raise NoRule
        if each is not first:
            system.equal(first.space.linear, each.space.linear)
        forms[rows], datum[rows] = each.forms, each.datum
    return Operand(operand.number, Value(first.space, forms, datum))


def _rows(operand: Operand, rows: Tensor, expert: int) -> Operand:
    if isinstance(operand.state, Routed):
        return Operand(operand.number[rows], operand.state.parts[expert][1])
    return operand.rearranged(lambda tensor: tensor[rows])


def _result_rows(result: Any, rows: Tensor) -> Any:
    return result[rows] if isinstance(result, Tensor) else tuple(each[rows] for each in result)


def _replaced(named: dict[str, Any], function: Callable[[Operand], Operand]) -> dict[str, Any]:
    def one(given: Any) -> Any:
        if isinstance(given, Operand):
            return function(given)
        return [one(each) for each in given] if isinstance(given, list | tuple) else given

    return {name: one(given) for name, given in named.items()}
