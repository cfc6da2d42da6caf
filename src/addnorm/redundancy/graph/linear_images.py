"""Values that are linear in an earlier one, so that shifts that are multiplied by either can meet.

A shift b of the keys adds q . b to the scores. With q = W x + c this is x . (W^T b) + c . b: a data-dependent shift with the
factor x and the source W^T b, and a shift that is known. A sink that reads x, S x, has the factor x as well, so that a move of
S can cancel the move of the keys; with the factor q it could not (`like_factors`). Both forms are exact. The second is made
only where it meets another shift with the factor x, because its source has more entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from addnorm.redundancy.execution.operation_names import COPIES, PERMUTING, VIEWS
from addnorm.redundancy.graph.reshaping import axes_after, concatenated, kept_axes, permuted, reshaped
from addnorm.redundancy.graph.shift import (
    DenseTerm,
    DiagonalTerm,
    Shift,
    scaled,
    times_matrix,
)
from addnorm.redundancy.graph.shift import add as plus

FEATURES, CONSTANT = 0, 1
"""Blocks of an image's map: the entries of the earlier value's last axis, and the constant that is added."""


@dataclass(frozen=True)
class Image:
    """A value as a linear map of the last axis of an earlier one, row by row, plus a constant."""

    base: str
    """Node of the earlier value."""
    rows: tuple[int, ...]
    """Axis of this value, per axis of the earlier one but the last."""
    map: Callable[[], Shift]
    """Computes the map: of block 0 the earlier value's entries, of block 1 the constant. Computed when it is read, since most
    values never meet a shift."""


def image(op: str, args: Any, shape: tuple[int, ...], target: Any) -> Image | None:
    """The image that an operation's result is; None if it is none, or if this is not known of the operation.

    Args:
        op: name of the operation.
        args: its positional arguments, with tensors as `NodeValue`.
        shape: shape of the result.
        target: the operation, which can be called on tensors without numbers.
    """
    if op == "cat":
        return _joined(args[0], args[1] if len(args) > 1 else 0, shape)
    if not args or not hasattr(args[0], "shift"):
        return None
    value = args[0]
    if op == "linear":
        return _projected(value, *args[1:])
    given = value.image
    if given is None:
        return None
    if op in VIEWS:
        return _moved(given, kept_axes(value.shape, shape), lambda each: reshaped(each, shape))
    if op in PERMUTING:
        order = axes_after(target, len(value.shape), *args[1:])
        return _moved(given, {old: new for new, old in enumerate(order)}, lambda each: permuted(each, order))
    if op in COPIES:
        return given
    number = args[1] if len(args) == 2 and isinstance(args[1], int | float) else None
    if number and op in ("mul", "div"):
        factor = float(number) if op == "mul" else 1.0 / number
        return replace(given, map=cache(lambda: scaled(given.map(), factor)))
    return None


def _projected(value: Any, weight: Any, bias: Any = None) -> Image | None:
    """The image of W x + c with known numbers that do not move, also of an x that is an image itself."""
    fixed = [each for each in (weight, bias) if each is not None]
    if value.known is not None or any(each.known is None or each.moves for each in fixed):
        return None
    size, last = value.shape[-1], len(value.shape) - 1
    given = value.image
    # An image whose rows lie along the last axis is mixed by the product.
    if given is not None and last in given.rows:
        return None
    shape = (*value.shape[:-1], weight.shape[0])

    def mapped() -> Shift:
        start = given.map() if given is not None else _identity(value.shape, size)
        out = times_matrix(start, weight.known.T.to(torch.float64), shape)
        if bias is None:
            return out
        numbers = bias.known.to(torch.float64).reshape(1, *(1,) * last, weight.shape[0])
        return plus(out, Shift(shape, {CONSTANT: DenseTerm(numbers, 0.0)}), shape)

    return Image(given.base if given else value.name, given.rows if given else tuple(range(last)), cache(mapped))


def _identity(shape: tuple[int, ...], size: int) -> Shift:
    term = DiagonalTerm(torch.ones(size, dtype=torch.float64), len(shape) - 1, len(shape), 0.0)
    return Shift(shape, {FEATURES: term})


def _moved(given: Image, axes: dict[int, int], move: Callable[[Shift], Shift]) -> Image | None:
    """The image of a value whose axes are rearranged, old -> new; None if rows are lost."""
    if any(axis not in axes for axis in given.rows):
        return None
    return Image(given.base, tuple(axes[axis] for axis in given.rows), cache(lambda: move(given.map())))


def _joined(values: Sequence[Any], dim: int, shape: tuple[int, ...]) -> Image | None:
    """The image of several images of one value, concatenated along an axis without rows."""
    images = [value.image for value in values]
    if any(each is None or (each.base, each.rows) != (images[0].base, images[0].rows) for each in images):
        return None
    axis = dim % len(shape)
    if axis in images[0].rows:
        return None
    return replace(images[0], map=cache(lambda: concatenated([each.map() for each in images], axis)))
