"""Reshaping, permuting, picking and joining of maps whose constant axes are not spelt out."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import torch

from addnorm.redundancy.graph.shift import LARGEST_MAP, Dense, Diagonal, Shift, Term, TooLarge


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of axes with equal products, as (old axes, new axes)."""
    found: list[tuple[list[int], list[int]]] = []
    at = to = 0
    while at < len(old) or to < len(new):
        mine, theirs, left, right = list[int](), list[int](), 1, 1
        if at < len(old):
            mine, left, at = [at], old[at], at + 1
        if to < len(new) and not (left == 1 and mine and new[to] != 1):
            theirs, right, to = [to], new[to], to + 1
        while left != right:
            if left < right:
                mine, left, at = [*mine, at], left * old[at], at + 1
            else:
                theirs, right, to = [*theirs, to], right * new[to], to + 1
        found.append((mine, theirs))
    return found


def kept_axes(old: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Old axes that are still one axis after a reshape, as old -> new."""
    kept = {}
    for mine, theirs in groups(old, new):
        wide = [axis for axis in mine if old[axis] > 1]
        far = [axis for axis in theirs if new[axis] > 1]
        if len(wide) == 1 and len(far) == 1:
            kept[wide[0]] = far[0]
    return kept


def reshaped(shift: Shift, shape: Sequence[int]) -> Shift:
    """view / reshape."""
    terms: dict[int, Term] = {}
    plan, kept = groups(shift.shape, shape), kept_axes(shift.shape, shape)
    for block, term in shift.terms.items():
        if isinstance(term, Diagonal) and term.axis in kept:
            terms[block] = Diagonal(term.scale, kept[term.axis], len(shape), term.noise)
            continue
        given = term.dense() if isinstance(term, Diagonal) else term
        reduced = given.reduced
        wide, out = [len(given.numbers)], [len(given.numbers)]
        for mine, theirs in plan:
            if all(reduced[axis] == 1 for axis in mine):
                wide += [1] * len(mine)
                out += [1] * len(theirs)
            else:
                wide += [shift.shape[axis] for axis in mine]
                out += [shape[axis] for axis in theirs]
        if prod(wide) > LARGEST_MAP:
            raise TooLarge
        terms[block] = replace(given, numbers=given.numbers.expand(wide).reshape(out))
    return Shift(tuple(shape), terms)


def permuted(shift: Shift, order: Sequence[int]) -> Shift:
    """permute; `order` without negative axes."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if isinstance(term, Diagonal):
            terms[block] = Diagonal(term.scale, list(order).index(term.axis), term.dims, term.noise)
        else:
            terms[block] = replace(term, numbers=term.numbers.permute(0, *(axis + 1 for axis in order)))
    return Shift(tuple(shift.shape[axis] for axis in order), terms)


def selected(shift: Shift, axis: int, index: torch.Tensor) -> Shift:
    """Some entries of one axis (int64 [k]); the axis stays."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if term.reduced[axis] == 1:
            terms[block] = term
        else:
            given = term.dense() if isinstance(term, Diagonal) else term
            numbers = given.numbers.index_select(axis + 1, index)
            if numbers.any():
                terms[block] = Dense(numbers, given.noise, condition=given.condition)
    return Shift(tuple(len(index) if at == axis else size for at, size in enumerate(shift.shape)), terms)


def concatenated(shifts: Sequence[Shift], axis: int) -> Shift:
    """cat along an axis."""
    sizes = [each.shape[axis] for each in shifts]
    shape = tuple(sum(sizes) if at == axis else size for at, size in enumerate(shifts[0].shape))
    terms: dict[int, Term] = {}
    for block in {block: None for each in shifts for block in each.terms}:
        dense = [
            (term.dense() if isinstance(term, Diagonal) else term) if (term := each.terms.get(block)) else None
            for each in shifts
        ]
        there = [each for each in dense if each is not None]
        first = there[0]
        same = len(there) == len(shifts) and all(each.reduced == first.reduced for each in there)
        if same and first.reduced[axis] == 1 and all(torch.equal(each.numbers, first.numbers) for each in there):
            terms[block] = first
            continue
        wide = list(
            torch.broadcast_shapes(*(tuple(1 if at == axis else s for at, s in enumerate(e.reduced)) for e in there))
        )
        if len(first.numbers) * prod(wide) * shape[axis] > LARGEST_MAP:
            raise TooLarge
        pieces = []
        for size, each in zip(sizes, dense, strict=True):
            target = (len(first.numbers), *(size if at == axis else s for at, s in enumerate(wide)))
            pieces.append(each.numbers.expand(target) if each is not None else first.numbers.new_zeros(target))
        terms[block] = Dense(
            torch.cat(pieces, dim=axis + 1),
            max(each.noise for each in there),
            regular=any(each.regular for each in there),
            condition=max(each.condition for each in there),
        )
    return Shift(shape, terms)


def summed(shift: Shift, axes: Sequence[int], shape: Sequence[int]) -> Shift:
    """Sum over axes, then shape as given (with or without the axes)."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        given = term.dense() if isinstance(term, Diagonal) and term.axis in axes else term
        hidden = prod(shift.shape[axis] for axis in axes if given.reduced[axis] == 1)
        if isinstance(given, Diagonal):
            axis = given.axis if len(shape) == len(shift.shape) else given.axis - sum(at < given.axis for at in axes)
            terms[block] = Diagonal(given.scale * hidden, axis, len(shape), given.noise * hidden)
            continue
        numbers = given.numbers.sum(dim=[axis + 1 for axis in axes], keepdim=True) * hidden
        spelt = prod(given.reduced[axis] for axis in axes)
        gain = hidden * spelt**0.5
        size = float(given.numbers.abs().max()) if given.numbers.numel() else 0.0
        if len(shape) != len(shift.shape):
            numbers = numbers.squeeze(tuple(axis + 1 for axis in axes))
        noise = given.noise * gain + 2.0**-51 * gain * size
        terms[block] = Dense(numbers, noise, condition=given.condition)
    return Shift(tuple(shape), terms)
