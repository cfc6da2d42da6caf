"""Sums of values, learned shifts and constants."""

import numpy as np
import torch
from scipy import linalg
from torch import Tensor

from addnorm.redundancy.execution.operation_names import MASKED
from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers, Term, negative, product_terms
from addnorm.symmetry.actions.rules.linear import weight_ids, with_one_constant
from addnorm.symmetry.actions.rules.products import gained, scaled, spread
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.system import (
    NoRule,
    System,
    by_datum,
    renumbered,
    turned,
    unique_rows,
)
from addnorm.symmetry.actions.uses import Derived, ShiftUse
from addnorm.symmetry.actions.values import NOWHERE, Fixed, FreeShift, Space, State, Value, Weight

_SMALL = 1e-3
"""Constants up to this size break a symmetry only nearly."""


@rule("add", "sub", "rsub", "add_", "sub_")
def summed(call: Call) -> State:
    """a + alpha b."""
    first, second = call.operand("self"), call.operand("other")
    factor = float(call.named.get("alpha", 1) or 1)
    if call.name == "rsub":
        first, second = second, first
    if call.name in ("sub", "rsub", "sub_"):
        factor = -factor
    second = scaled_operand(second, factor)
    shape = call.result.shape
    if isinstance(second.state, Value) and not isinstance(first.state, Value):
        first, second = second, first
    if not isinstance(first.state, Value):
        if isinstance(first.state, Weight):
            first, second = second, first
        if not isinstance(first.state, Fixed) or not isinstance(second.state, Weight):
            raise NoRule
        first = Operand(first.number, still_vector(call, Operand(first.number.expand(shape), first.state)))
    value = spread(first.state, shape)
    if isinstance(second.state, Value):
        return _joined(call.system, value, spread(second.state, shape))
    if isinstance(second.state, Weight) or second.constant:
        return shifted(call.system, value, second, factor if isinstance(second.state, Weight) else 1.0)
    return _joined(call.system, value, still_vector(call, Operand(second.number.expand(shape), second.state)))


def scaled_operand(operand: Operand, factor: float) -> Operand:
    """Multiply by a number; the tangent of a weight keeps its unknowns, and the caller multiplies it."""
    number = operand.number * factor
    if isinstance(operand.state, Value):
        return Operand(number, scaled(operand.state, torch.tensor(factor, dtype=torch.float64)))
    return Operand(number, operand.state)


def shifted(system: System, value: Value, other: Operand, factor: float = 1.0) -> Value:
    """x + P with a weight or constant P, of which `other` has the number times `factor`, and the tangent without it: z = x + P
    moves by A z + b' with b' = b + δP - A P, where b may be another for each kind of data (a class token and patches)."""
    number = other.number.double().detach()
    if isinstance(other.state, Fixed) and not bool(number.any()):
        return system.whole(value)
    value, shifts, kinds = system.by_kind(value)
    members, _ = by_datum(value)
    before, shape = value.space, value.shape
    if not system.only_softmax and bool((number.abs() >= -MASKED).any()):
        raise NoRule
    number = torch.where(number <= MASKED, 0.0, number)
    numbers = number.expand(shape).reshape(-1)[members]
    ids = torch.from_numpy(np.array(np.broadcast_to(weight_ids(other), shape))).reshape(-1)[members]
    rows = [ids.numpy(), numbers.numpy(), kinds.numpy()[:, None]]
    unique, kind = np.unique(np.concatenate(rows, 1), axis=0, return_inverse=True)
    size = before.size
    space = system.space(size, linear=before.linear)
    space.roles |= before.roles | ({"shift"} if isinstance(other.state, Weight) else set())
    nearly = isinstance(other.state, Fixed) and float(number.abs().max()) < _SMALL
    sources = system.equations.unknowns(len(unique)) if len(unique) > 1 else np.full(1, ZERO)
    for row, source in zip(unique, sources, strict=True):
        tangent, at, own = row[:size].astype(np.int64), row[size:-1], Space(before.linear, shifts[int(row[-1])])
        common: list[Term] = [
            (space.shift[:, None], np.ones((1, 1))),
            (own.shift[:, None], -np.ones((1, 1))),
            (tangent[:, None], np.full((1, 1), -factor)),
            (np.full((size, 1), source), np.ones((1, 1))),
        ]
        if nearly:
            # What scales x does not scale x + eps; were eps zero, nothing would be demanded.
            system.equations.require(*common[:2])
            system.equations.require(product_terms(before.linear, at[:, None]), nearly=True)
        else:
            system.equations.require(*common, product_terms(before.linear, at[:, None]))
            system.uses.append(ShiftUse(own, space.shift, tangent, at, factor, int(source)))
    if len(unique) > 1:
        system.marks.append(sources)
    if len(unique) == 1:
        space.nulls = [(null, constant - float(null @ unique[0, size:-1])) for null, constant in before.nulls]
    made = renumbered(Value(before, value.forms, value.datum, value.free), space, members)
    if len(unique) > 1:
        group = torch.empty(value.datum.numel(), dtype=torch.int64)
        group[members] = torch.from_numpy(kind).reshape(-1, 1).expand(members.shape)
        shift = FreeShift(group.reshape(shape), torch.ones(shape, dtype=torch.float64), sources)
        made = made.with_free((*made.free, shift))
    return made


def _joined(system: System, one: Value, other: Value) -> Value:
    """The sum of two values."""
    both = (one.datum != NOWHERE) & (other.datum != NOWHERE)
    together = _regained(system, one, other)
    if together is not None:
        return together
    if one.space is other.space and bool((one.datum == other.datum)[both].all()):
        datum = torch.where(one.datum == NOWHERE, other.datum, one.datum)
        return Value(one.space, one.forms + other.forms, datum, _merged(one, other))
    pairs = torch.stack([one.datum.reshape(-1), other.datum.reshape(-1)], 1)
    names = pairs.unique(dim=0, return_inverse=True)[1].reshape(one.shape)
    if int(names.max()) + 1 == len(pairs) and bool(both.all()):
        # The value that was made last is turned: a stream is older than what is added to it.
        last = max((one, other), key=lambda each: system.spaces.index(each.space))
        made = turned(system, last, (one if last is other else other).datum)
        if made is not None:
            return _joined(system, one, made) if last is other else _joined(system, made, other)
    datum = system.new_data(int(names.max()) + 1)[names]
    members, _ = by_datum(Value(one.space, one.forms, datum))
    sizes = one.space.size, other.space.size
    forms = torch.cat([one.forms, other.forms], -1).reshape(-1, sum(sizes))[members]
    kinds = unique_rows(forms.reshape(len(members), -1)).reshape(-1, members.shape[1], sum(sizes))
    size = members.shape[1]
    is_same = len(kinds) == 1 and sizes[0] == size and np.array_equal(kinds[0][:, : sizes[0]], np.eye(size))
    space = system.space(size, linear=one.space.linear if is_same else None, role="sum")
    for each in kinds:
        left, right = each[:, : sizes[0]], each[:, sizes[0] :]
        system.intertwine(space.linear, left, one.space.linear)
        system.intertwine(space.linear, right, other.space.linear)
        system.equations.require(
            (space.shift[:, None], np.ones((1, 1))),
            negative(product_terms(left, one.space.shift[:, None])),
            negative(product_terms(right, other.space.shift[:, None])),
        )
    if len(kinds) == 1 and one.space.nulls and other.space.nulls:
        space.nulls = _common_nulls(kinds[0], one.space, other.space)
    return renumbered(Value(one.space, one.forms, datum, (*one.free, *other.free)), space, members)


def _common_nulls(forms: Numbers, one: Space, other: Space) -> list[tuple[Numbers, float]]:
    """The null forms of z = L x + R y: v with v L a null form of x and v R one of y, as of a norm's result and its mean."""
    blocks = linalg.block_diag(*(np.array([null for null, _ in each.nulls]) for each in (one, other)))
    constants = np.array([constant for each in (one, other) for _, constant in each.nulls])
    null = linalg.null_space(np.concatenate([forms, -blocks]).T, rcond=1e-9)
    return with_one_constant([(each[: len(forms)], float(each[len(forms) :] @ constants)) for each in null.T])


def _regained(system: System, one: Value, other: Value) -> Value | None:
    """P x + R x as (P + R) x, where both are the same value times weights (or one); None if they are not.

    Their tangents may cancel each other, which the actions of two independent summands would forbid.
    """
    parts = []
    for each in (one, other):
        origin = system.gains.get(each.space)
        size = each.space.size
        parts.append(origin[:3] if origin else (each, np.ones(size), np.full(size, ZERO)))
        if not bool((each.forms.sum(-1) == 1).all()) or not bool(((each.forms == 0) | (each.forms == 1)).all()):
            return None
    (value, numbers, ids), (again, others, other_ids) = parts
    if one.space not in system.gains and other.space not in system.gains:
        return None
    if value.space is not again.space or one.shape != value.shape or other.shape != value.shape:
        return None
    if not torch.equal(value.datum, again.datum) or not torch.equal(value.forms, again.forms):
        return None
    if not torch.equal(one.datum, other.datum) or not torch.equal(one.forms, other.forms):
        return None
    # The two products alone are read by nothing else, so that each weight need not flow as if it were.
    abandoned = {id(system.gains[each.space][3]) for each in (one, other) if each.space in system.gains}
    system.uses = [each for each in system.uses if id(each) not in abandoned]
    # One unknown per different pair of tangents, so that a number that all entries share stays one number.
    pairs, place = np.unique(np.stack([ids, other_ids], 1), axis=0, return_inverse=True)
    made = system.equations.unknowns(len(pairs))
    unit = np.ones((1, 1))
    system.equations.require((made[:, None], -unit), (pairs, np.ones_like(pairs, dtype=np.float64)))
    total = Operand(torch.from_numpy(numbers + others), Weight(made[place.reshape(-1)]))
    system.derived.append(
        Derived(
            made,
            tuple(pairs.T),
            lambda given: given[0] + given[1],
            tuple(numbers_of(pairs, ids, other_ids, numbers, others)),
        )
    )
    members, _ = by_datum(value)
    entries = torch.zeros(value.datum.numel(), dtype=torch.float64)
    spread_ids = np.full(value.datum.numel(), ZERO)
    for row in members:
        entries[row] = total.number
        spread_ids[row.numpy()] = weight_ids(total)
    return gained(system, value, Operand(entries.reshape(value.shape), Weight(spread_ids.reshape(tuple(value.shape)))))


def combined(system: System, one: Operand, other: Operand, factors: Tensor) -> Operand:
    """a + f b of two vectors of weights, entry by entry with numbers f, as a weight with tangents of its own."""
    sources, unit = (weight_ids(one), weight_ids(other)), np.ones((len(factors), 1))
    made = system.equations.unknowns(len(factors))
    system.equations.require(
        (made[:, None], -unit), (sources[0][:, None], unit), (sources[1][:, None], factors.numpy()[:, None])
    )
    numbers = one.number.double().detach(), other.number.double().detach()
    system.derived.append(Derived(made, sources, lambda given: given[0] + factors * given[1], numbers))
    return Operand(numbers[0] + factors * numbers[1], Weight(made))


def numbers_of(pairs: Ids, ids: Ids, other_ids: Ids, numbers: Numbers, others: Numbers) -> tuple[Tensor, Tensor]:
    """The numbers of each pair of tangents."""
    at = [int(np.flatnonzero((ids == one) & (other_ids == other))[0]) for one, other in pairs]
    return torch.from_numpy(numbers[at]), torch.from_numpy(others[at])


def _merged(one: Value, other: Value) -> tuple[FreeShift, ...]:
    """Free shifts of a sum; those with the same sources and groups add up."""
    made = list(one.free)
    for each in other.free:
        for at, known in enumerate(made):
            if known.sources is each.sources and torch.equal(known.group, each.group):
                made[at] = FreeShift(known.group, known.direction + each.direction, known.sources)
                break
        else:
            made.append(each)
    return tuple(each for each in made if bool((each.direction.abs() > 1e-12).any()))
