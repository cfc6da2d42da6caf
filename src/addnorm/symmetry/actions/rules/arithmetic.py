"""Sums and products, of values with values, with weights and with constants."""

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers, Term, negative, product_terms
from addnorm.symmetry.actions.rules.linear import entry_by_entry, weight_ids
from addnorm.symmetry.actions.rules.pointwise import power
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.system import NoRule, System, by_datum, merged_free, renumbered, uncopied, unique_rows
from addnorm.symmetry.actions.uses import Derived, GainUse, ShiftUse
from addnorm.symmetry.actions.values import NOWHERE, Fixed, FreeShift, Space, State, Value, Weight

_DEAD = -1e4
"""Constants from here down are masks: what is added to them has no effect after a softmax."""
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


def spread(state: State, shape: torch.Size) -> Value:
    """Broadcast a value.

    Raises:
        NoRule: the state is not a value.
    """
    if not isinstance(state, Value):
        raise NoRule
    if state.shape == shape:
        return state
    forms = state.forms.reshape((1,) * (len(shape) - len(state.shape)) + tuple(state.forms.shape))
    return Value(
        state.space,
        forms.expand(*shape, state.space.size),
        state.datum.expand(shape),
        tuple(FreeShift(each.group.expand(shape), each.direction.expand(shape), each.sources) for each in state.free),
    )


def scaled(value: Value, numbers: Tensor) -> Value:
    """Multiply by constants."""
    numbers = numbers.double()
    free = tuple(FreeShift(each.group, each.direction * numbers, each.sources) for each in value.free)
    return Value(value.space, value.forms * numbers[..., None], value.datum, free)


def shifted(system: System, value: Value, other: Operand, factor: float = 1.0) -> Value:
    """x + P with a weight or constant P, of which `other` has the number times `factor`, and the tangent without it: z = x + P
    moves by A z + b' with b' = b + δP - A P, where b may be another for each kind of data (a class token and patches)."""
    number = other.number.double().detach()
    if isinstance(other.state, Fixed) and not bool(number.any()):
        return system.whole(value)
    value, shifts, kinds = system.by_kind(value)
    members, _ = by_datum(value)
    before, shape = value.space, value.shape
    if not system.only_softmax and bool((number.abs() >= -_DEAD).any()):
        raise NoRule
    number = torch.where(number <= _DEAD, 0.0, number)
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
    return renumbered(Value(one.space, one.forms, datum, merged_free([one, other])), space, members)


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


@rule("mul", "mul_")
def multiplied(call: Call) -> State:
    """a b."""
    return times(call, call.operand("self"), call.operand("other"), call.result.shape)


@rule("neg")
def negated(call: Call) -> State:
    """-a."""
    return scaled(spread(call.operand("self").state, call.result.shape), torch.tensor(-1.0))


@rule("div", "div_")
def divided(call: Call) -> State:
    """a / b."""
    if call.named.get("rounding_mode"):
        raise NoRule
    first, second = call.operand("self"), call.operand("other")
    inverse = Operand(1 / second.number.double(), second.state)
    if isinstance(second.state, Value):
        inverse = Operand(inverse.number, power(call.system, uncopied(second.state), -1.0))
    elif isinstance(second.state, Weight):
        raise NoRule
    return times(call, first, inverse, call.result.shape)


def times(call: Call, first: Operand, second: Operand, shape: torch.Size) -> State:
    """The product of two tensors, entry by entry."""
    if not isinstance(first.state, Value):
        first, second = second, first
    if not isinstance(first.state, Value):
        if not isinstance(first.state, Weight):
            first, second = second, first
        if not isinstance(first.state, Weight) or not isinstance(second.state, Fixed):
            raise NoRule
        return gained(call.system, still_vector(call, Operand(second.number.expand(shape), second.state)), first)
    value = spread(first.state, shape)
    if second.constant:
        return scaled(value, second.number)
    if isinstance(second.state, Weight):
        return gained(call.system, value, second)
    # What is broadcast becomes a space of its own before it is copied.
    other = second.state if isinstance(second.state, Value) else None
    own = second.number.shape if other is not None else _varying(second.number)
    return product(call.system, first.state, other, own, shape)


def _varying(number: Tensor) -> torch.Size:
    """The shape of an invariant tensor, with 1 for axes along which it was only copied, as a norm by `expand_as` is."""
    same = [bool((number == number.narrow(axis, 0, 1)).all()) for axis in range(number.dim())]
    return torch.Size(1 if copied else size for copied, size in zip(same, number.shape, strict=True))


def gained(system: System, value: Value, other: Operand) -> Value:
    """x times a weight P, entry by entry: A' P = P A + δP, entry by entry, and b' = P b."""
    value = entry_by_entry(system, system.whole(system.with_zeros(value)), other)
    members, _ = by_datum(value)
    before, shape = value.space, value.shape
    number = other.number.double().detach().expand(shape)
    numbers = number.reshape(-1)[members]
    ids = torch.from_numpy(np.array(np.broadcast_to(weight_ids(other), shape))).reshape(-1)[members]
    unique = np.unique(np.concatenate([ids.numpy(), numbers.numpy()], 1), axis=0)
    size = before.size
    space = system.space(size)
    if "norm" in before.roles:
        space.roles.add("gain")
    else:
        before.roles.add("scaled")
        system.factors.append(np.unique(weight_ids(other)))
    for row in unique:
        tangent, at = row[:size].astype(np.int64), row[size:]
        on_diagonal = np.full((size, size), ZERO)
        np.fill_diagonal(on_diagonal, tangent)
        system.equations.require(
            product_terms(space.linear, np.diag(at)),
            negative(product_terms(np.diag(at), before.linear)),
            (on_diagonal.reshape(-1, 1), -np.ones((1, 1))),
        )
        system.equations.require((space.shift[:, None], np.ones((1, 1))), (before.shift[:, None], -at[:, None]))
        use = GainUse(np.diag(before.linear), np.diag(space.linear), tangent, at, before.linear)
        system.uses.append(use)
    if len(unique) == 1 and bool((unique[0, size:] != 0).all()):
        space.nulls = [(null / unique[0, size:], constant) for null, constant in before.nulls]
        space.roles |= before.roles & {"spanned"}
    free = tuple(FreeShift(each.group, each.direction * number, each.sources) for each in value.free)
    if len(unique) == 1:
        system.gains[space] = (value, unique[0, size:], unique[0, :size].astype(np.int64), use)
    return renumbered(Value(before, value.forms, value.datum, free), space, members)


def product(
    system: System, one: Value, other: Value | None, other_shape: torch.Size, shape: torch.Size | None = None
) -> Value:
    """Product of a value with another, or with an invariant tensor (None), entry by entry.

    An action of one factor may mix entries only where the other factor has the same number: x r with one r per datum
    keeps all of A, gates keep its diagonal. The actions of both add up.
    """
    shape = one.shape if shape is None else shape
    for each in (one, other):
        if each is not None:
            system.drop(each)
    one = spread(system.whole(one), shape)
    if other is not None:
        other = system.whole(other)
        second = _entry_numbers(other).expand(shape)
        pairs = torch.stack([one.datum.reshape(-1), other.datum.expand(shape).reshape(-1)], 1)
        datum = pairs.unique(dim=0, return_inverse=True)[1].reshape(shape)
        datum = system.new_data(int(datum.max()) + 1)[datum]
    else:
        second = torch.arange(int(np.prod(other_shape))).reshape(other_shape).expand(shape)
        datum = one.datum
    members, _ = by_datum(Value(one.space, one.forms, datum))
    size = members.shape[1]
    first_ids = _entry_numbers(one).reshape(-1)[members]
    second_ids = second.reshape(-1)[members]
    same = [(ids[:, :, None] == ids[:, None, :]).all(0).numpy() for ids in (second_ids, first_ids)]
    space = system.space(size, linear=np.full((size, size), ZERO), shift=np.full(size, ZERO))
    roles = one.space.roles | (other.space.roles if other is not None else set())
    space.roles |= roles & {"norm"} | ({"norm"} if "length" in roles else set())
    actions: list[Ids] = []
    for value, kept in ((one, same[0]), (other, same[1])):
        if value is None:
            continue
        places = spread(value, shape).forms.argmax(-1).reshape(-1)[members]
        if bool((places != places[:1]).any()):
            raise NoRule
        actions.append(_acting(system, value, places[0].numpy(), kept))
        if not kept.all() and size > 1:
            value.space.roles.add("unit")
            space.roles.add("unit")
    space.linear[:] = actions[0] if len(actions) == 1 else _total(system, actions)
    if same[0].all() and one.space.size == size:
        # One factor for all entries: what vanishes without it vanishes with it.
        entry = one.forms.argmax(-1).reshape(-1)[members[0]].numpy()
        space.nulls = [(null[entry], constant) for null, constant in one.space.nulls if constant == 0]
        space.roles |= one.space.roles & {"spanned"}
    return renumbered(Value(one.space, one.forms, datum), space, members)


def _entry_numbers(value: Value) -> Tensor:
    """A number for every entry, equal where the entry is the same form of the same datum; for values made whole."""
    return value.datum * value.space.size + value.forms.argmax(-1)


def _acting(system: System, value: Value, places: Ids, kept: np.ndarray) -> Ids:
    """The action of one factor on the product's entries; what the other factor does not allow vanishes."""
    size = len(places)
    acting = np.full((size, size), ZERO)
    barred: list[int] = []
    for row in range(size):
        allowed = {int(places[column]): column for column in np.flatnonzero(kept[row])[::-1]}
        for inner in range(value.space.size):
            unknown = int(value.space.linear[places[row], inner])
            if inner in allowed:
                acting[row, row if inner == places[row] else allowed[inner]] = unknown
            elif unknown != ZERO:
                barred.append(unknown)
    system.equations.vanish(np.array(barred, np.int64))
    system.equations.vanish(value.space.shift[np.unique(places)])
    return acting


def _total(system: System, actions: list[Ids]) -> Ids:
    """Unknowns that are sums."""
    one, other = actions
    total = np.where(one == ZERO, other, one)
    both = (one != ZERO) & (other != ZERO)
    total[both] = system.equations.unknowns(int(both.sum()))
    unit = np.ones((1, 1))
    system.equations.require((total[both][:, None], unit), (one[both][:, None], -unit), (other[both][:, None], -unit))
    return total
