"""Functions of single entries; masks. A homogeneous one, f(c x) = c^p f(x), keeps an action that scales entries: A' = p A."""

import numpy as np

from addnorm.redundancy.execution.operation_names import MASKED
from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO
from addnorm.symmetry.actions.system import NoRule, System, by_datum, renumbered
from addnorm.symmetry.actions.values import Fixed, Square, State, Value, Weight

_NO_LENGTH = 1e-10
"""Smaller lengths are those of zeros."""
HOMOGENEOUS = ("relu", "leaky_relu", "abs")
"""Functions that keep every positive factor."""
_DEGREES = dict.fromkeys(HOMOGENEOUS, 1.0) | {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0}


@rule(*_DEGREES)
def homogeneous(call: Call) -> State:
    """A function that is homogeneous in positive factors."""
    state = call.operand("self").state
    if isinstance(state, Square):
        state = settled(call.system, state)
    if not isinstance(state, Value):
        raise NoRule
    if call.name == "square":
        return Square(state)
    return power(call.system, state, _DEGREES[call.name])


@rule("clamp", "clamp_min", "clamp_max")
def clamped(call: Call) -> State:
    """A bound of zero, which is homogeneous, or one that a length never reaches unless it is zero."""
    state = call.operand("self").state
    low, high = call.named.get("min"), call.named.get("max")
    if not isinstance(state, Value):
        raise NoRule
    if all(each is None or (isinstance(each, int | float) and not each) for each in (low, high)):
        return power(call.system, state, 1.0)
    if "length" in state.space.roles and never_bounds(call):
        return state
    raise NoRule


def never_bounds(call: Call) -> bool:
    """True for a bound from below, such as an eps, that none but zeros of lengths reach."""
    low, high, number = call.named.get("min"), call.named.get("max"), call.operand("self").number
    is_low = call.name != "clamp_max" and high is None and isinstance(low, float) and 0 < low <= _NO_LENGTH
    return is_low and bool((number > _NO_LENGTH).all())


@rule("pow")
def powered(call: Call) -> State:
    """x^p with a number p."""
    state, exponent = call.operand("self").state, call.named.get("exponent")
    if not isinstance(state, Value) or not isinstance(exponent, int | float):
        raise NoRule
    return Square(state) if exponent == 2 else power(call.system, state, float(exponent))


def settled(system: System, state: Square) -> Value:
    """A square of which not only the sum is used."""
    return power(system, state.of, 2.0)


def power(system: System, value: Value, degree: float) -> Value:
    """A function of degree `degree`, entry by entry."""
    system.drop(value)
    value = system.whole(value)
    before, size = value.space, value.space.size
    system.diagonal(before)
    system.equations.vanish(before.shift)
    linear = np.full((size, size), ZERO)
    if degree == 1.0:
        np.fill_diagonal(linear, np.diag(before.linear))
    else:
        np.fill_diagonal(linear, system.equations.unknowns(size))
        one = np.ones((1, 1))
        system.equations.require((np.diag(linear)[:, None], one), (np.diag(before.linear)[:, None], -degree * one))
    space = system.space(size, linear=linear, shift=np.full(size, ZERO))
    if "length" in before.roles:
        space.roles.add("length")
    elif size > 1:
        before.roles.add("unit")
        space.roles.add("unit")
    return renumbered(value.with_free(()), space, by_datum(value)[0])


@rule("gt", "ge", "lt", "le", "eq", "ne", "isinf", "isnan", "isfinite")
def compared(call: Call) -> State:
    """The mask of learned numbers, which no move of them changes. Other comparisons may change along a move."""
    if any(not isinstance(each.state, Weight | Fixed) for each in call.operands()):
        raise NoRule
    if "other" in call.named and not bool((call.operand("other").number <= MASKED).all()):
        raise NoRule
    return Fixed(constant=True)


@rule("masked_fill", "where")
def masked(call: Call) -> State:
    """Entries replaced by a constant so low that the softmax which reads them ignores it."""
    if call.name == "where":
        condition, kept, other = call.operand("condition"), call.operand("self"), call.operand("other")
        if isinstance(other.state, Value):
            kept, other, condition = other, kept, Operand(~condition.number, condition.state)
    else:
        given = call.operand("mask")
        condition, kept, other = Operand(~given.number, given.state), call.operand("self"), call.operand("value")
    value = kept.state
    if isinstance(value, Weight) and condition.constant and other.constant:
        # A bias with the mask in it: what is masked does not move.
        live = np.broadcast_to(condition.number.numpy(), tuple(call.result.shape))
        return Weight(np.where(live, np.broadcast_to(value.ids, live.shape), ZERO))
    if not isinstance(value, Value) or not condition.constant or not other.constant:
        raise NoRule
    used = other.number.expand(call.result.shape)[~condition.number.expand(call.result.shape)]
    if not used.numel() or (call.system.only_softmax and bool((used <= MASKED).all())):
        return value
    raise NoRule
