"""Values that are linear in an earlier one, so that shifts that are multiplied by either can meet.

A shift b of the keys adds q . b to the scores. With q = W x + c this is x . (W^T b) + c . b: a data-dependent shift with the
factor x and the source W^T b, and a shift that is known. A sink that reads x, S x, has the factor x as well, so that a move of
S can cancel the move of the keys; with the factor q it could not (`like_factors`). Both forms are exact. The second is made
only where it meets another shift with the factor x, because its source has more entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from addnorm.redundancy.graph.reshaping import concatenated, kept_axes, permuted, reshaped, selected
from addnorm.redundancy.graph.shift import (
    EPS,
    LARGEST_MAP,
    DenseTerm,
    DiagonalTerm,
    Shift,
    Term,
    TooLarge,
    scaled,
    times_matrix,
)
from addnorm.redundancy.graph.shift import add as plus

if TYPE_CHECKING:
    from addnorm.redundancy.graph.like_factors import Product

_FEATURES, _CONSTANT = 0, 1
"""Blocks of an image's map: the entries of the earlier value's last axis, and the constant that is added."""

_VIEWS = frozenset({"view", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"})
_PERMUTING = frozenset({"permute", "transpose", "t", "movedim", "swapaxes", "numpy_T", "adjoint", "mT"})
_COPIES = frozenset({"clone", "contiguous", "alias", "detach", "_to_copy", "to"})


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
    if op in ("cat", "concat"):
        return _joined(args[0], args[1] if len(args) > 1 else 0, shape)
    if not args or not hasattr(args[0], "shift"):
        return None
    value = args[0]
    if op == "linear":
        return _projected(value, *args[1:])
    given = value.image
    if given is None:
        return None
    if op in _VIEWS and not any(isinstance(each, torch.dtype) for each in args[1:]):
        return _moved(given, kept_axes(value.shape, shape), lambda each: reshaped(each, shape))
    if op in _PERMUTING:
        probe = torch.empty(tuple(range(2, 2 + len(value.shape))), device="meta")
        order = [size - 2 for size in target(probe, *args[1:]).shape]
        return _moved(given, {old: new for new, old in enumerate(order)}, lambda each: permuted(each, order))
    if op in _COPIES:
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
        return plus(out, Shift(shape, {_CONSTANT: DenseTerm(numbers, 0.0)}), shape)

    return Image(given.base if given else value.name, given.rows if given else tuple(range(last)), cache(mapped))


def _identity(shape: tuple[int, ...], size: int) -> Shift:
    term = DiagonalTerm(torch.ones(size, dtype=torch.float64), len(shape) - 1, len(shape), 0.0)
    return Shift(shape, {_FEATURES: term})


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
    return None if axis in images[0].rows else replace(images[0], map=cache(lambda: _all_of(images, axis)))


def _all_of(images: Sequence[Any], axis: int) -> Shift:
    return concatenated([each.map() for each in images], axis)


def base_of(product: "Product") -> str:
    """Name of the value of which a product's factor is an image, or of the factor itself."""
    return product.image.base if product.image is not None else product.factor


def rebased(product: "Product", source: Shift, shape: tuple[int, ...]) -> tuple[Shift, "Product", Shift] | None:
    """The same data-dependent shift with the factor's earlier value as its factor; None if its labels do not describe that.

    Args:
        product: relation of the shift to its source.
        source: its source.
        shape: of the value that shifts.

    Returns:
        The source, the product, and the known shift that the constant of the factor makes.
    """
    given = product.image
    if given is None or product.moved:
        return None
    rows = [product.factor_axes[axis] for axis in given.rows]
    labels = [label for label in product.source_axes if label is not None]
    own = [label for at, label in enumerate(product.factor_axes) if at not in given.rows]
    # A row that is summed, or two axes of one label, are no plain product with the earlier value.
    if any(label < 0 for label in rows) or any(len(set(each)) < len(each) for each in (labels, product.factor_axes)):
        return None
    if any(label < 0 and label not in own for label in labels):
        return None
    kept = sorted({label for label in (*labels, *own) if label >= 0})
    feature = -1 - len(rows)
    terms = given.map().dense()
    if _FEATURES not in terms:
        return None
    of_entries = _contracted(product, source, terms[_FEATURES], [*kept, feature], shape)
    new = replace(product, factor=given.base, factor_axes=(*rows, feature), source_axes=(*kept, feature), image=None)
    none = Shift(shape, {})
    if _CONSTANT not in terms:
        return of_entries, new, none
    constant = _contracted(product, source, terms[_CONSTANT], [*range(len(shape)), feature], shape)
    return of_entries, new, reshaped(selected(constant, len(shape), torch.tensor([0])), shape)


def _contracted(product: "Product", source: Shift, given: DenseTerm, out: list[int], shape: tuple[int, ...]) -> Shift:
    """Sum source times map over the labels that `out` lacks; the map's own entries become its last label."""
    sizes = [given.numbers.shape[0] if label < 0 else shape[label] for label in out]
    # Labels of einsum: 0 is the block. The map's own entries get a new one, since the label that they have in the result may be
    # that of a summed axis of the factor.
    every = dict.fromkeys(
        [*out[:-1], *product.factor_axes, *(each for each in product.source_axes if each is not None)]
    )
    names = {label: at + 1 for at, label in enumerate(every)}
    feature = len(names) + 1
    known = [feature, *(names[label] for label in product.factor_axes)]
    wanted = [names[label] for label in out[:-1]] + [feature]
    size = float(given.numbers.abs().max()) if given.numbers.numel() else 0.0
    terms: dict[int, Term] = {}
    for block, term in source.dense().items():
        numbers, labels, summed = term.numbers, list[int](), 1
        for at, label in enumerate(product.source_axes):
            if label is None:
                numbers = numbers.narrow(at + 1, 0, 1)
            if label is not None and label < 0:
                wide = list(numbers.shape)
                wide[at + 1] = source.shape[at]
                numbers, summed = numbers.expand(wide), summed * source.shape[at]
            labels.append(names[label] if label is not None else 0)
        kept = [at for at, label in enumerate(product.source_axes) if label is not None]
        numbers = numbers.reshape(len(numbers), *(numbers.shape[at + 1] for at in kept))
        present = {*known, *(labels[at] for at in kept)}
        result = [label for label in wanted if label in present]
        if len(numbers) * given.numbers.numel() * max(1, numbers[0].numel()) > LARGEST_MAP:
            raise TooLarge
        product_ = torch.einsum(numbers, [0, *(labels[at] for at in kept)], given.numbers, known, [0, *result])
        full = [product_.shape[1 + result.index(label)] if label in present else 1 for label in wanted]
        gain = size * summed**0.5
        noise = term.noise * gain + (given.noise + 4 * EPS * gain) * float(numbers.abs().max())
        terms[block] = DenseTerm(
            product_.reshape(len(numbers), *full), noise, condition=term.condition * given.condition
        )
    return Shift(tuple(sizes), terms)
