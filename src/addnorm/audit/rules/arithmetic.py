"""Sums and products of two values."""

import torch

from addnorm.audit.rule import Site, rule
from addnorm.audit.shift import add as plus
from addnorm.audit.shift import scaled, spread, still, times
from addnorm.audit.value import Loose, Out, Value

Number = int | float | bool

_SMALLEST = 0.01
"""Smallest factor after which a masked entry is still hidden from a softmax: exp(-100) of the rest at least."""


def lifted(loose: tuple[Loose, ...], dims: int, shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[Loose, ...]:
    """Loose moves of an operand that is broadcast: its axes count from the right, and are constant along those it
    lacks.
    """
    more = dims - len(own)
    return tuple(
        Loose(
            each.source, {axis + more: source for axis, source in each.axes.items() if own[axis] == shape[axis + more]}
        )
        for each in loose
    )


def _factor(value: Value | Number) -> float | None:
    """A multiplier that is one known number and does not move."""
    if isinstance(value, int | float):
        return float(value)
    if value.known is not None and not value.moves and value.known.numel() == 1 and not value.known.is_complex():
        return float(value.known.to(torch.float64))
    return None


@rule("add", "sub", "rsub", "__add__", "__sub__", "add_", "sub_")
def add(site: Site, first: Value | Number, second: Value | Number, *, alpha: Number = 1) -> Out:
    """(a + s) + (b + t) = (a + b) + (s + t): the shifts add up, whatever the data."""
    if site.op == "rsub":
        first, second = second, first
    factor = float(alpha) * (1.0 if site.op in ("add", "__add__", "add_") else -1.0)
    a = first.shift if isinstance(first, Value) else still(())
    b = second.shift if isinstance(second, Value) else still(())
    dims = len(site.shape)
    loose = tuple(
        each
        for value in (first, second)
        if isinstance(value, Value)
        for each in lifted(value.loose, dims, site.shape, value.shape)
    )
    masked = any(isinstance(value, Value) and value.masked for value in (first, second))
    return Out(plus(a, b, site.shape, factor), loose, masked=masked)


@rule("mul", "div", "true_divide", "__mul__", "mul_", "div_", "neg")
def mul(site: Site, first: Value | Number, second: Value | Number = -1.0, **kwargs: object) -> Out:
    """(a + s) c = a c + s c for known c; by data g the shift becomes g s, unknown, but the same wherever g and s are.

    The product of two moving values is no linear function of the move, so one must keep still."""
    if site.op in ("div", "true_divide", "div_"):
        if kwargs.get("rounding_mode") is not None:
            return _nothing(site, first, second)
        second = _inverse(site, second)
    if not isinstance(first, Value) or (isinstance(second, Value) and not first.moves and second.moves):
        first, second = second, first
    if not isinstance(first, Value):
        return site.still()
    if isinstance(second, Value) and first.moves and second.moves:
        site.unchanged(second)
        first = _renewed(site, first)
    factor = _factor(second)
    if first.masked and first.moves and (factor is None or factor < _SMALLEST):
        return _nothing(site, first)
    dims = len(site.shape)
    loose = lifted(first.loose, dims, site.shape, first.shape)
    if factor is not None:
        sums = {axis: known * factor for axis, known in first.sums.items()} if first.shape == site.shape else {}
        return Out(scaled(spread(first.shift, site.shape), factor), loose, sums, first.masked and factor >= _SMALLEST)
    if not isinstance(second, Value):
        return _nothing(site, first)
    more = dims - len(second.shape)
    flat = {axis for axis in range(dims) if axis < more or second.shape[axis - more] == 1}
    loose = tuple(Loose(each.source, {at: own for at, own in each.axes.items() if at in flat}) for each in loose)
    if second.known is not None:
        return Out(times(first.shift, second.known, site.shape), loose)
    if first.shift:
        source = spread(first.shift, site.shape)
        loose = (*loose, Loose(source, {axis: axis for axis in flat if site.shape[axis] > 1}))
    return Out(still(site.shape), loose)


def _renewed(site: Site, value: Value) -> Value:
    loose = tuple(Loose(now, each.axes) for each in value.loose if (now := site.now(each.source)))
    return Value(value.shape, site.now(value.shift), value.known, loose, value.sums, value.masked)


def _inverse(site: Site, value: Value | Number) -> Value | Number:
    """1 / value; a divisor must not move."""
    if not isinstance(value, Value):
        return 1.0 / value if value else float("nan")
    site.unchanged(value)
    known = None if value.known is None else 1.0 / value.known.to(torch.float64)
    return Value(value.shape, still(value.shape), known)


def _nothing(site: Site, *values: object) -> Out:
    site.unchanged(*(value for value in values if isinstance(value, Value)))
    return site.still()


@rule("where", always=True)
def where(site: Site, condition: Value, first: Value | Number, second: Value | Number) -> Out:
    """Masking with at most -1e4 leaves entries that no softmax sees, so that what moves them does not matter.

    Else, if which one is taken is known, each entry has its own shift; if it is data, both shifts must agree."""
    return _where(site, condition, first, second)


def _where(site: Site, condition: Value, first: Value | Number, second: Value | Number) -> Out:
    site.unchanged(condition)
    if not isinstance(first, Value) or not isinstance(second, Value):
        return _nothing(site, first, second)
    for kept, filled in ((first, second), (second, first)):
        if _hides(filled) and not filled.moves:
            dims = len(site.shape)
            loose = lifted(kept.loose, dims, site.shape, kept.shape)
            if kept.moves:
                site.assume("masked entries (filled with at most -1e4) get no weight, and no row is masked throughout")
            return Out(spread(kept.shift, site.shape), loose, masked=True)
    if first.masked or second.masked:
        return _nothing(site, first, second)
    first, second = site.settled(first), site.settled(second)
    if condition.known is not None:
        chosen = condition.known.to(torch.float64)
        a, b = times(first.shift, chosen, site.shape), times(second.shift, 1 - chosen, site.shape)
        return Out(plus(a, b, site.shape))
    site.vanish(plus(first.shift, second.shift, site.shape, -1.0))
    return Out(spread(site.now(first.shift), site.shape))


def _hides(value: Value) -> bool:
    return value.known is not None and value.known.numel() > 0 and bool((value.known <= -1e4).all())


@rule("masked_fill", always=True)
def masked_fill(site: Site, value: Value, mask: Value, fill: Value | Number) -> Out:
    """where(mask, fill, value)."""
    number = fill if isinstance(fill, Value) else Value((), still(()), torch.tensor(float(fill), dtype=torch.float64))
    return _where(site, mask, number, value)


@rule("addcmul")
def addcmul(site: Site, value: Value, first: Value, second: Value, **_: object) -> Out:
    """value + c a b: the factors must not move."""
    site.unchanged(first, second)
    value = site.settled(value)
    return Out(spread(value.shift, site.shape), masked=value.masked)
