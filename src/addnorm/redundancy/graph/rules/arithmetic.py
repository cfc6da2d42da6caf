"""Sums and products of two values."""

from collections.abc import Hashable
from dataclasses import replace
from itertools import count
from math import inf

import torch

from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.shift import scaled, spread, still, times
from addnorm.redundancy.graph.value import Loose, Mask, Out, Value, together

Number = int | float | bool

_LIFT = 5e3
"""Largest difference of known numbers that leaves an entry of -1e4 hidden when it is added."""


HIDDEN = "masked entries (filled with at most -1e4) get no weight, and no row is masked throughout"

_NEXT = count()


def born() -> tuple[Hashable, ...]:
    """The path of a move that no other value has yet."""
    return (next(_NEXT),)


def lifted(loose: tuple[Loose, ...], dims: int, shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[Loose, ...]:
    """Loose moves of an operand that is broadcast: its axes count from the right, and are constant along those it
    lacks.
    """
    more = dims - len(own)
    axes = {axis: axis + more for axis in range(len(own)) if own[axis] == shape[axis + more]}
    return tuple(replace(each.turned(axes), path=each.path) for each in loose)


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
    left, right = (
        lifted(value.loose, dims, site.shape, value.shape) if isinstance(value, Value) else ()
        for value in (first, second)
    )
    right = tuple(replace(each, factor=factor * each.factor) for each in right)
    loose = _cancelled(left, right, _widened(first, second, site.shape))
    return Out(plus(a, b, site.shape, factor), loose, masked=_strayed(first, second, factor))


def _widened(first: Value | Number, second: Value | Number, shape: tuple[int, ...]) -> list[int] | None:
    """Axes of the sum along which just one of the operands varies; None where an operand lacks axes."""
    sizes = [value.shape for value in (first, second) if isinstance(value, Value)]
    if any(len(size) != len(shape) for size in sizes):
        return None
    return [axis for axis in range(len(shape)) if any(size[axis] != shape[axis] for size in sizes)]


def _cancelled(left: tuple[Loose, ...], right: tuple[Loose, ...], widened: list[int] | None) -> tuple[Loose, ...]:
    """The loose moves of a sum: one that both operands have, with opposite factors, is gone; where one of them has a single
    entry along an axis (a maximum, a mean), only if it is constant there."""
    rest = list(right)
    kept = []
    for each in left:
        twin = None
        if each.path and widened is not None:
            twins = (other for other in rest if other.path == each.path and other.factor == -each.factor)
            twin = next((t for t in twins if all(_constant(each, at) or _constant(t, at) for at in widened)), None)
        if twin is None:
            kept.append(each)
        else:
            rest.remove(twin)
    return (*kept, *rest)


def _constant(loose: Loose, axis: int) -> bool:
    return axis in loose.axes and all(term.reduced[loose.axes[axis]] == 1 for term in loose.source.terms.values())


def _strayed(first: Value | Number, second: Value | Number, factor: float) -> Mask | None:
    """The mask of first + factor second: what moves the other operand moves the masked entries too, unless they are infinite.
    Taken away, they are no longer small, nor if known numbers lift them up again."""
    masks = [
        _lifted(value.masked.times(gain), other)
        for value, other, gain in ((first, second, 1.0), (second, first, factor))
        if isinstance(value, Value) and value.masked is not None
    ]
    if not masks:
        return None
    stray = [shift for mask in masks for shift in mask.stray]
    for value, other in ((first, second), (second, first)):
        endless = isinstance(value, Value) and value.masked is not None and value.masked.endless
        if isinstance(value, Value) and value.masked is not None and not endless and isinstance(other, Value):
            stray += [shift for shift in (other.shift, *(each.source for each in other.loose)) if shift]
    place = masks[0].place if len(masks) == 1 else ""
    return replace(together(masks), place=place, stray=tuple(stray))


def _lifted(mask: Mask, other: Value | Number) -> Mask:
    """A mask to which something is added: known numbers may differ so much that a masked entry comes up again."""
    known = other.known if isinstance(other, Value) else None
    if known is None or known.numel() < 2 or mask.endless:
        return mask
    most, least = float(known.max()), float(known.min())
    return replace(mask, hides=mask.hides and min(most, most - least) <= _LIFT)


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
    masked = first.masked
    if masked is not None and (factor is None or (masked.hides and not masked.times(factor).hides)):
        if first.moves:
            return _nothing(site, first)
        masked = None
    elif masked is not None and factor is not None:
        masked = masked.times(factor)
    dims = len(site.shape)
    loose = lifted(first.loose, dims, site.shape, first.shape)
    if factor is not None:
        sums = {axis: known * factor for axis, known in first.sums.items()} if first.shape == site.shape else {}
        loose = tuple(replace(each, factor=factor * each.factor) for each in loose) if factor else ()
        return Out(scaled(spread(first.shift, site.shape), factor), loose, sums, masked)
    if not isinstance(second, Value):
        return _nothing(site, first)
    more = dims - len(second.shape)
    flat = {axis for axis in range(dims) if axis < more or second.shape[axis - more] == 1}
    loose = tuple(each.turned({at: at for at in flat}) for each in loose)
    if second.known is not None:
        return Out(times(first.shift, second.known, site.shape), loose)
    if first.shift:
        source = spread(first.shift, site.shape)
        loose = (*loose, Loose(source, {axis: axis for axis in flat if site.shape[axis] > 1}, path=born()))
    return Out(still(site.shape), loose)


def _renewed(site: Site, value: Value) -> Value:
    return value.brought_up(site.now)


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
    first, second = _number(first), _number(second)
    dims = len(site.shape)
    if condition.fact == "nowhere":
        site.assume(HIDDEN)
        return Out(spread(second.shift, site.shape), lifted(second.loose, dims, site.shape, second.shape))
    sides = ((second, first, condition.name), (first, second, condition.name and f"not {condition.name}"))
    for kept, filled, place in sides:
        before = kept.masked
        if before is not None and not before.hides and place and before.place == place:
            before = None  # the same entries are filled again
        if _hides(filled) and not filled.moves and (before is None or before.hides):
            loose = lifted(kept.loose, dims, site.shape, kept.shape)
            if kept.moves:
                site.assume(HIDDEN)
            endless = filled.known is not None and bool((filled.known == -inf).all())
            mask = (
                Mask(True, endless, place=place)
                if before is None
                else replace(before, endless=endless and before.endless, place="")
            )
            return Out(spread(kept.shift, site.shape), loose, masked=mask)
    if any(_uncovered(kept, place, condition) for kept, _, place in sides):
        return _nothing(site, first, second)
    for kept, filled, place in sides:
        if kept.moves and not filled.moves and condition.known is None and place:
            # Whoever reads the filled entries will demand that nothing moves; who fills them again will not.
            mask = Mask(hides=False, place=place)
            return Out(spread(kept.shift, site.shape), lifted(kept.loose, dims, site.shape, kept.shape), masked=mask)
    first, second = site.settled(first), site.settled(second)
    if condition.known is not None:
        chosen = condition.known.to(torch.float64)
        a, b = times(first.shift, chosen, site.shape), times(second.shift, 1 - chosen, site.shape)
        return Out(plus(a, b, site.shape))
    site.vanish(plus(first.shift, second.shift, site.shape, -1.0))
    return Out(spread(site.now(first.shift), site.shape))


def _uncovered(kept: Value, place: str, condition: Value) -> bool:
    """Whether a value has masked entries that this filling does not replace, or may not."""
    mask = kept.masked
    return mask is not None and not (
        mask.endless and place == condition.name and condition.fact == f"endless {kept.name}"
    )


def _number(value: Value | Number) -> Value:
    if isinstance(value, Value):
        return value
    return Value((), still(()), torch.tensor(float(value), dtype=torch.float64))


def _hides(value: Value) -> bool:
    return value.known is not None and value.known.numel() > 0 and bool((value.known <= -1e4).all())


@rule("masked_fill", always=True)
def masked_fill(site: Site, value: Value, mask: Value, fill: Value | Number) -> Out:
    """where(mask, fill, value)."""
    return _where(site, mask, fill, value)


@rule("addcmul")
def addcmul(site: Site, start: Value, first: Value, second: Value, *, value: Number = 1) -> Out:
    """start + value a b: the factors must not move."""
    site.unchanged(first, second)
    start = site.settled(start)
    return Out(spread(start.shift, site.shape), masked=start.masked)
