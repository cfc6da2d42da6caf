"""Reshape, permute, select, concatenate and sum of shifts whose constant axes have size 1."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from addnorm.redundancy.graph.shift import LARGEST_MAP, DenseTerm, DiagonalTerm, Shift, Term, TooLarge


def axes_after(target: Any, dims: int, *args: Any, **kwargs: Any) -> list[int]:
    """Return the axis that an operation which only orders axes puts at each place, for any way to say so."""
    # Sizes 2, 3, 4, … tell the axes apart.
    probe = torch.empty(tuple(range(2, 2 + dims)), device="meta")
    return [size - 2 for size in target(probe, *args, **kwargs).shape]


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest runs of axes with equal products, as pairs of old axes and new axes."""
    runs: list[tuple[list[int], list[int]]] = []
    at = to = 0
    while at < len(old) or to < len(new):
        old_axes, new_axes, left, right = list[int](), list[int](), 1, 1
        if at < len(old):
            old_axes, left, at = [at], old[at], at + 1
        # An old axis of one entry pairs with a new one of one entry or with none. Paired with a larger one it would
        # pull in its neighbours, and an axis that stays an axis would be lost in the group.
        if to < len(new) and not (left == 1 and old_axes and new[to] != 1):
            new_axes, right, to = [to], new[to], to + 1
        while left != right:
            if left < right:
                old_axes, left, at = [*old_axes, at], left * old[at], at + 1
            else:
                new_axes, right, to = [*new_axes, to], right * new[to], to + 1
        runs.append((old_axes, new_axes))
    return runs


def kept_axes(old: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Return the axes that stay a single axis in a reshape, as old -> new."""
    kept = {}
    for old_axes, new_axes in groups(old, new):
        before = [axis for axis in old_axes if old[axis] > 1]
        after = [axis for axis in new_axes if new[axis] > 1]
        if len(before) == 1 and len(after) == 1:
            kept[before[0]] = after[0]
    return kept


def reshaped(shift: Shift, shape: Sequence[int]) -> Shift:
    """Apply view or reshape."""
    terms: dict[int, Term] = {}
    runs, kept = groups(shift.shape, shape), kept_axes(shift.shape, shape)
    for block, term in shift.terms.items():
        if isinstance(term, DiagonalTerm) and term.axis in kept:
            terms[block] = DiagonalTerm(term.scale, kept[term.axis], len(shape), term.noise)
            continue
        given = term.dense() if isinstance(term, DiagonalTerm) else term
        reduced = given.reduced
        wide, out = [len(given.numbers)], [len(given.numbers)]
        for old_axes, new_axes in runs:
            if all(reduced[axis] == 1 for axis in old_axes):
                wide += [1] * len(old_axes)
                out += [1] * len(new_axes)
            else:
                wide += [shift.shape[axis] for axis in old_axes]
                out += [shape[axis] for axis in new_axes]
        if prod(wide) > LARGEST_MAP:
            raise TooLarge
        terms[block] = replace(given, numbers=given.numbers.expand(wide).reshape(out))
    return Shift(tuple(shape), terms)


def permuted(shift: Shift, order: Sequence[int]) -> Shift:
    """Apply permute; `order` has no negative axes."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if isinstance(term, DiagonalTerm):
            terms[block] = DiagonalTerm(term.scale, list(order).index(term.axis), term.dims, term.noise)
        else:
            terms[block] = replace(term, numbers=term.numbers.permute(0, *(axis + 1 for axis in order)))
    return Shift(tuple(shift.shape[axis] for axis in order), terms)


def selected(shift: Shift, axis: int, index: torch.Tensor) -> Shift:
    """Select entries of one axis by index (int64 [k]); the axis stays."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if term.reduced[axis] == 1:
            terms[block] = term
        else:
            given = term.dense() if isinstance(term, DiagonalTerm) else term
            numbers = given.numbers.index_select(axis + 1, index)
            if numbers.any():
                # Not regular any more: the entries that are left out may be those that a move changes.
                terms[block] = DenseTerm(numbers, given.noise, condition=given.condition)
    return Shift(tuple(len(index) if at == axis else size for at, size in enumerate(shift.shape)), terms)


def concatenated(shifts: Sequence[Shift], axis: int) -> Shift:
    """Concatenate along an axis."""
    sizes = [each.shape[axis] for each in shifts]
    shape = tuple(sum(sizes) if at == axis else size for at, size in enumerate(shifts[0].shape))
    terms: dict[int, Term] = {}
    for block in {block: None for each in shifts for block in each.terms}:
        dense = [
            (term.dense() if isinstance(term, DiagonalTerm) else term) if (term := each.terms.get(block)) else None
            for each in shifts
        ]
        present = [each for each in dense if each is not None]
        first = present[0]
        same = len(present) == len(shifts) and all(each.reduced == first.reduced for each in present)
        if same and first.reduced[axis] == 1 and all(torch.equal(each.numbers, first.numbers) for each in present):
            terms[block] = first
            continue
        wide = list(
            torch.broadcast_shapes(*(tuple(1 if at == axis else s for at, s in enumerate(e.reduced)) for e in present))
        )
        if len(first.numbers) * prod(wide) * shape[axis] > LARGEST_MAP:
            raise TooLarge
        pieces = []
        for size, each in zip(sizes, dense, strict=True):
            target = (len(first.numbers), *(size if at == axis else s for at, s in enumerate(wide)))
            pieces.append(each.numbers.expand(target) if each is not None else first.numbers.new_zeros(target))
        terms[block] = DenseTerm(
            # Regular if one part is: that part alone shows every move of the block.
            torch.cat(pieces, dim=axis + 1),
            max(each.noise for each in present),
            regular=any(each.regular for each in present),
            condition=max(each.condition for each in present),
        )
    return Shift(shape, terms)


def summed(shift: Shift, axes: Sequence[int], shape: Sequence[int]) -> Shift:
    """Sum over axes, and reshape to `shape` (with or without these axes)."""
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        given = term.dense() if isinstance(term, DiagonalTerm) and term.axis in axes else term
        # Along an axis that is stored once all entries carry the same error, which a sum multiplies; along the others
        # errors are independent and grow by the root.
        repeats = prod(shift.shape[axis] for axis in axes if given.reduced[axis] == 1)
        if isinstance(given, DiagonalTerm):
            axis = given.axis if len(shape) == len(shift.shape) else given.axis - sum(at < given.axis for at in axes)
            terms[block] = DiagonalTerm(given.scale * repeats, axis, len(shape), given.noise * repeats)
            continue
        numbers = given.numbers.sum(dim=[axis + 1 for axis in axes], keepdim=True) * repeats
        expanded = prod(given.reduced[axis] for axis in axes)
        gain = repeats * expanded**0.5
        size = float(given.numbers.abs().max()) if given.numbers.numel() else 0.0
        if len(shape) != len(shift.shape):
            numbers = numbers.squeeze(tuple(axis + 1 for axis in axes))
        noise = given.noise * gain + 2.0**-51 * gain * size
        terms[block] = DenseTerm(numbers, noise, condition=given.condition)
    return Shift(tuple(shape), terms)
