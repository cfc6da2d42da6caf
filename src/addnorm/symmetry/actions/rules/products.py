"""Products and quotients entry by entry, of values, learned factors and invariant tensors."""

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO, Ids, negative, product_terms
from addnorm.symmetry.actions.rules.linear import entry_by_entry, weight_ids
from addnorm.symmetry.actions.rules.pointwise import power
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.system import (
    NoRule,
    System,
    by_datum,
    renumbered,
    uncopied,
)
from addnorm.symmetry.actions.uses import GainUse
from addnorm.symmetry.actions.values import NOWHERE, Fixed, FreeShift, State, Value, Weight


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


@rule("mul", "mul_")
def multiplied(call: Call) -> State:
    """a b."""
    one, other = call.operand("self"), call.operand("other")
    return _turned(call, one, other) if call.result.is_complex() else times(call, one, other, call.result.shape)


@rule("view_as_complex")
def paired(call: Call) -> State:
    """Pairs of numbers as complex ones, of which the state is that of both parts."""
    value = call.operand("self").state
    if not isinstance(value, Value):
        raise NoRule
    call.system.drop(value)
    return tuple(
        Value(value.space, forms, datum)
        for forms, datum in zip(value.forms.unbind(-2), value.datum.unbind(-1), strict=True)
    )


@rule("view_as_real")
def unpaired(call: Call) -> State:
    """Complex numbers as pairs."""
    real, imaginary = _parts(call.operand("self"))
    forms, datum = torch.stack([real.forms, imaginary.forms], -2), torch.stack([real.datum, imaginary.datum], -1)
    return Value(real.space, forms, datum)


def _turned(call: Call, one: Operand, other: Operand) -> State:
    """Complex numbers times constants, as a rotation by position is often written."""
    if isinstance(other.state, tuple):
        one, other = other, one
    if not other.constant:
        raise NoRule
    real, imaginary = (spread(each, call.result.shape) for each in _parts(one))
    if not torch.equal(real.datum, imaginary.datum):
        raise NoRule
    factor = torch.view_as_real(other.number.to(torch.complex128).expand(call.result.shape).contiguous())
    cosine, sine = factor[..., 0, None], factor[..., 1, None]
    return (
        Value(real.space, real.forms * cosine - imaginary.forms * sine, real.datum),
        Value(real.space, real.forms * sine + imaginary.forms * cosine, real.datum),
    )


def _parts(operand: Operand) -> tuple[Value, Value]:
    """The real and the imaginary part of complex numbers.

    Raises:
        NoRule: the operand holds no complex numbers, or its parts are of different vectors.
    """
    match operand.state:
        case (Value() as real, Value() as imaginary) if operand.number.is_complex() and real.space is imaginary.space:
            return real, imaginary
    raise NoRule


@rule("neg")
def negated(call: Call) -> State:
    """-a."""
    return scaled(spread(call.operand("self").state, call.result.shape), torch.tensor(-1.0))


@rule("div", "div_")
def divided(call: Call) -> State:
    """a / b."""
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
        if call.system.is_rotating and _differs_by_datum(value, second):
            # Angles by position from a table, as constants: products with moving ones would have actions of their own, which
            # the two products that a rotation sums must not.
            call.system.equations.vanish(second.state.ids)
            return scaled(value, second.number)
        return gained(call.system, value, second)
    # What is broadcast becomes a space of its own before it is copied.
    other = second.state if isinstance(second.state, Value) else None
    own = second.number.shape if other is not None else _varying(second.number)
    return product(call.system, first.state, other, own, shape)


def _differs_by_datum(value: Value, weight: Operand) -> bool:
    """True if a weight has several numbers for the entries of one datum, and others at the next."""
    if bool((value.datum == NOWHERE).any()):
        return False
    members, _ = by_datum(value)
    ids = np.broadcast_to(weight_ids(weight), tuple(value.shape)).reshape(-1)[members.numpy()]
    return bool((ids != ids[:1]).any() and (ids != ids[:, :1]).any())


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
        if not kept.all() and size > 1 and "length" not in value.space.roles:
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
