"""Functions of single entries. A homogeneous one, f(c x) = c^p f(x), keeps an action that scales entries: A' = p A."""

import numpy as np

from addnorm.symmetry.actions.call import Call, rule
from addnorm.symmetry.actions.equations import ZERO
from addnorm.symmetry.actions.system import NoRule, System, by_datum, renumbered
from addnorm.symmetry.actions.values import Square, State, Value

_NO_LENGTH = 1e-10
"""Smaller lengths are those of zeros."""
_DEGREES = {"relu": 1.0, "abs": 1.0, "leaky_relu": 1.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0}


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
    if "length" in state.space.roles and high is None and isinstance(low, float) and low <= _NO_LENGTH:
        return state
    raise NoRule


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
