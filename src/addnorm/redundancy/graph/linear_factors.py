"""Two data-dependent shifts whose factors are linear maps of one earlier value, expressed with that value as their factor.

See `linear_images`; scores q b and a sink S x, which both depend on x, are the example.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from addnorm.redundancy.graph.like_factors import Product
from addnorm.redundancy.graph.linear_images import CONSTANT, FEATURES
from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.shift import EPS, LARGEST_MAP, DenseTerm, Shift, Term, TooLarge


@dataclass(frozen=True)
class DataTerm:
    """A data-dependent shift of which the factor is known: factor * source, by a product."""

    source: Shift
    product: Product
    factor: float = 1.0


def met(
    first: DataTerm, second: DataTerm, shape: tuple[int, ...]
) -> tuple[DataTerm, DataTerm, Sequence[tuple[float, Shift]]] | None:
    """Express two data-dependent shifts with the same earlier value as their factor; None if they have none in common.

    Returns:
        The two, and known shifts with their factors, which constants of linear maps leave.
    """
    terms, known = [], list[tuple[float, Shift]]()
    if first.product.factor == second.product.factor or base_of(first.product) != base_of(second.product):
        return None
    for each in (first, second):
        if each.product.image is None:
            terms.append(each)
            continue
        expressed = rebased(each.product, each.source, shape)
        if expressed is None:
            return None
        source, product, constant = expressed
        terms.append(replace(each, source=source, product=product))
        known += [(each.factor, constant)] if constant else []
    return terms[0], terms[1], known


def base_of(product: Product) -> str:
    """Name of the value of which a product's factor is an image, or of the factor itself."""
    return product.image.base if product.image is not None else product.factor


def rebased(product: Product, source: Shift, shape: tuple[int, ...]) -> tuple[Shift, Product, Shift] | None:
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
    if FEATURES not in terms:
        return None
    of_entries = _contracted(product, source, terms[FEATURES], [*kept, feature], shape)
    new = replace(product, factor=given.base, factor_axes=(*rows, feature), source_axes=(*kept, feature), image=None)
    none = Shift(shape, {})
    if CONSTANT not in terms:
        return of_entries, new, none
    constant = _contracted(product, source, terms[CONSTANT], [*range(len(shape)), feature], shape)
    return of_entries, new, reshaped(selected(constant, len(shape), torch.tensor([0])), shape)


def _contracted(product: Product, source: Shift, given: DenseTerm, out: list[int], shape: tuple[int, ...]) -> Shift:
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
