"""Rules for linear maps and matrix products, all of which are a contraction over labelled axes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from addnorm.redundancy.algebra.rank import null_space
from addnorm.redundancy.graph.like_factors import Product, moves_last, of, shifts_of
from addnorm.redundancy.graph.reshaping import permuted, selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.arithmetic import broadcast_data_shifts, new_origin, times_number
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
    zero_shift,
)
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.value import DataShift, NodeValue, Output, Plane, Relaxation

Labels = list[int]


def contract(call: OpCall, a: NodeValue, la: Labels, b: NodeValue, lb: Labels, lo: Labels) -> Output:
    """Sum a[la] * b[lb] over the labels that `lo` lacks.

    A known factor multiplies the shift. For two data, (x + s)(y + t) - xy = s (y + t) + x t; the first term is
    data-dependent but, along axes that y does not have, constant where s is. If y's sum over the summed axis is known
    (the rows of a softmax) and s is constant along it, the shift is s.
    """
    if a.known is not None and not a.moves and b.known is None:
        return _known(call, b, lb, a.known, la, lo)
    if b.known is not None and not b.moves:
        return _known(call, a, la, b.known, lb, lo)
    shift, data_shifts = zero_shift(call.shape), tuple[DataShift, ...]()
    # (x + s)(y + t) - xy = s (y + t) + x t; if x or y is known, s (x's or y's numbers) counts as known in one of the terms.
    exact = b if b.known is not None else a if a.known is not None else None
    for x, lx, y, ly in ((a, la, b, lb), (b, lb, a, la)):
        bare = {label: at for at, label in enumerate(lx) if label in lo and _unit(y, ly, label)}
        axes = {lo.index(label): at for label, at in bare.items()}
        for each in x.data_shifts:
            data_shifts += (each.rearranged({at: to for to, at in axes.items()}),)
        if not x.shift:
            continue
        summed = [label for label in dict.fromkeys([*lx, *ly]) if label not in lo]
        # Rows of y with a known sum, as a softmax's: sum over j of y_j (x_j + s) - y_j x_j = (sum of y_j) s if s is the
        # same for all j. y itself must not shift, or its own term would come on top.
        whole = y.sums.get(ly.index(summed[0])) if len(summed) == 1 and summed[0] in ly else None
        if y.known is not None and (y is exact or not y.moves):
            shift = plus(shift, _einsum(x.shift, lx, y.known.to(torch.float64), ly, lo, call.shape), call.shape)
        elif whole is not None and summed[0] in lx and not y.moves:
            at = lx.index(summed[0])
            level = call.demand_constant(x.shift, [at])
            one = selected(level, at, torch.tensor([0]))
            shift = plus(shift, _einsum(one, lx, whole, ly, lo, call.shape), call.shape)
        else:
            # The convention of `moves_last`: of two factors with unknown numbers one counts after its move, the same
            # one in every product in which both orders occur.
            moved = x is exact or (exact is None and (y is b) == moves_last(a, b))
            product, scale = _product(call, lx, y, ly, lo, moved)
            data_shifts += (
                DataShift(x.shift, axes, _relaxation(x, lx, y, ly, lo), new_origin(), scale, product=product),
            )
    return Output(call.current(shift), data_shifts)


def _product(
    call: OpCall, lx: Labels, y: NodeValue, ly: Labels, lo: Labels, moved: bool
) -> tuple[Product | None, float]:
    """The product of a shift with y, and the scale of y in it; None if y is not a plain multiple of a value."""
    same = of(y)
    if not same.name or not same.scale or same.offset:
        return None, 1.0
    # A repeated label is a diagonal, and a label of x alone that the output lacks is a plain sum: labels of axes
    # describe neither.
    if len(set(lx)) < len(lx) or len(set(ly)) < len(ly) or any(label not in lo and label not in ly for label in lx):
        return None, 1.0
    if any(label in lo and y.shape[at] != call.shape[lo.index(label)] for at, label in enumerate(ly)):
        return None, 1.0
    labels = {label: lo.index(label) for label in lo}
    labels |= {label: -1 - same.order[at] for at, label in enumerate(ly) if label not in lo}
    places = [0] * len(ly)
    for at, own in enumerate(same.order):
        places[own] = labels[ly[at]]
    source_axes = tuple(labels[label] for label in lx)
    return Product(same.name, tuple(places), source_axes, shifts_of(y) if moved else (), same.image), same.scale


def _relaxation(x: NodeValue, lx: Labels, y: NodeValue, ly: Labels, lo: Labels) -> Relaxation | None:
    """A shift of x along a normal of y's plane has the same product with every y."""
    summed = [label for label in dict.fromkeys([*lx, *ly]) if label not in lo]
    if y.plane is None or len(summed) != 1 or lx[-1:] != summed or ly.index(summed[0]) != y.plane.axis:
        return None
    # (s off the plane's normals = 0) leaves s = sum of a_i n_i, and n_i . y is the same number for all y in the plane.
    normals = y.plane.normals()
    if not len(normals):
        return None
    own = frozenset(lo.index(label) for label in ly if label in lo and label not in lx)
    return Relaxation(times_matrix(x.shift, projection_off(normals), x.shape), own)


def projection_off(normals: torch.Tensor) -> torch.Tensor:
    """Return the projection onto the complement of orthonormal rows, [entries, entries]."""
    return torch.eye(normals.shape[1], dtype=torch.float64) - normals.T @ normals


def _plane_after(plane: Plane | None, weight: torch.Tensor, axis: int) -> Plane:
    """The plane of W y for a known W [out, in]: its normals c are those for which c W is a normal of y, or zero."""

    @cache
    def normals() -> torch.Tensor:
        columns = weight.to(torch.float64)
        kept = plane.normals() if plane is not None else columns.new_zeros(0, columns.shape[1])
        if columns.shape[0] < columns.shape[1] - len(kept):  # fewer rows of a generic W give no normal
            return columns.new_zeros(0, columns.shape[0])
        # c . (W y) is constant if W^T c is a combination of y's normals, that is, if W^T c vanishes off them.
        return torch.from_numpy(null_space((projection_off(kept) @ columns.T).numpy()).T)

    return Plane(axis, normals)


def _unit(value: NodeValue, labels: Labels, label: int) -> bool:
    return label not in labels or value.shape[labels.index(label)] == 1


def _known(
    call: OpCall, value: NodeValue, labels: Labels, known: torch.Tensor, known_labels: Labels, lo: Labels
) -> Output:
    known = known.to(torch.float64)
    # Along an axis that the known factor lacks each output entry has the one unknown source entry, so that the axis
    # keeps its meaning. Along the factor's own axes the entries are mixed.
    absent = [label for label in labels if label in lo and label not in known_labels]
    axes = {labels.index(label): lo.index(label) for label in absent}
    data_shifts = tuple(each.rearranged(axes) for each in value.data_shifts)
    sums = {}
    for axis, total in value.sums.items():
        if axis in axes:
            shape = tuple(1 if at == axis else size for at, size in enumerate(value.shape))
            product = torch.einsum(total.expand(shape), labels, known, known_labels, lo)
            sums[axes[axis]] = product
    if not value.shift:
        return Output(zero_shift(call.shape), data_shifts, sums)
    return Output(_einsum(value.shift, labels, known, known_labels, lo, call.shape), data_shifts, sums)


def _einsum(
    shift: Shift, labels: Labels, known: torch.Tensor, known_labels: Labels, lo: Labels, shape: tuple[int, ...]
) -> Shift:
    """Apply the contraction to the map; axes that are not summed stay reduced."""
    last = labels[-1]
    plain = last not in lo and known.dim() == 2 and known_labels[0] == last and lo == [*labels[:-1], known_labels[1]]
    if plain:
        return times_matrix(shift, known, shape)
    used = {label for label in labels if label not in lo}
    block = 1 + max([*labels, *known_labels, *lo])
    gain = float(known.abs().max()) if known.numel() else 0.0
    for label in used:
        # Errors of the entries that are summed are independent.
        gain *= shift.shape[labels.index(label)] ** 0.5
    terms: dict[int, Term] = {}
    for name, term in shift.terms.items():
        given = term.dense() if isinstance(term, DiagonalTerm) else term
        wide = [shift.shape[at] if label in used else given.reduced[at] for at, label in enumerate(labels)]
        out = [len(given.numbers)]
        for label in lo:
            size = wide[labels.index(label)] if label in labels else 1
            out.append(max(size, known.shape[known_labels.index(label)] if label in known_labels else 1))
        numbers = 1
        for size in out:
            numbers *= size
        if numbers > LARGEST_MAP:
            raise TooLarge
        expanded = given.numbers.expand(len(given.numbers), *wide)
        product = torch.einsum(expanded, [block, *labels], known, known_labels, [block, *lo])
        noise = term.noise * gain + 4 * EPS * gain * float(given.numbers.abs().max())
        terms[name] = DenseTerm(product, noise, condition=given.condition)
    return Shift(shape, terms)


def matmul_labels(a: Sequence[int], b: Sequence[int]) -> tuple[Labels, Labels, Labels]:
    """Return the labels of torch.matmul for two shapes: 0 summed, 1 rows, 2 columns, batch axes from 3, counted from
    the right."""
    if len(a) == 1 and len(b) == 1:
        return [0], [0], []
    if len(a) == 1:
        batch = [3 + at for at in reversed(range(len(b) - 2))]
        return [0], [*batch, 0, 2], [*batch, 2]
    if len(b) == 1:
        batch = [3 + at for at in reversed(range(len(a) - 2))]
        return [*batch, 1, 0], [0], [*batch, 1]
    more = max(len(a), len(b)) - 2
    batch = [3 + at for at in reversed(range(more))]
    batch_a, batch_b = batch[more - len(a) + 2 :], batch[more - len(b) + 2 :]
    return [*batch_a, 1, 0], [*batch_b, 0, 2], [*batch, 1, 2]


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__", "linalg_vecdot")
def matmul(call: OpCall, a: NodeValue, b: NodeValue, *_: object, **__: object) -> Output:
    """A contraction over the last axis of a and the second to last of b, see `contract`."""
    return contract(call, a, *_paired(matmul_labels(a.shape, b.shape), b))


def _paired(labels: tuple[Labels, Labels, Labels], b: NodeValue) -> tuple[Labels, NodeValue, Labels, Labels]:
    return labels[0], b, labels[1], labels[2]


@rule("linear", always=True)
def linear(call: OpCall, value: NodeValue, weight: NodeValue, bias: NodeValue | None = None) -> Output:
    """W (x + s) + (b + t) = (W x + b) + (W s + t)."""
    dims = len(value.shape)
    batch = [2 + at for at in range(dims - 1)]
    product = contract(call, value, [*batch, 0], _transposed(weight), [0, 1], [*batch, 1])
    out = _with_bias(call, product, bias)
    along = value.plane is None or value.plane.axis == dims - 1
    if weight.known is not None and not weight.moves and (bias is None or bias.known is not None) and along:
        return replace(out, plane=_plane_after(value.plane, weight.known, dims - 1))
    return out


def _transposed(weight: NodeValue) -> NodeValue:
    """The transpose of a matrix."""
    known = None if weight.known is None else weight.known.T
    data_shifts = tuple(each.rearranged({0: 1, 1: 0}) for each in weight.data_shifts)
    return NodeValue(weight.shape[::-1], permuted(weight.shift, [1, 0]), known, data_shifts)


def _with_bias(call: OpCall, product: Output, bias: NodeValue | None, factor: float = 1.0) -> Output:
    if bias is None:
        return product
    if not factor:
        return product
    added = broadcast_data_shifts(bias.data_shifts, len(call.shape), call.shape, bias.shape)
    data_shifts = (*product.data_shifts, *times_number(added, factor))
    sums = {}
    if bias.known is not None:
        known = bias.known.to(torch.float64) * factor
        sums = {axis: total + _total(known, axis, call.shape) for axis, total in product.sums.items()}
    shift = plus(call.current(product.shift), bias.shift, call.shape, factor)
    return Output(shift, data_shifts, sums)


def _total(added: torch.Tensor, axis: int, shape: tuple[int, ...]) -> torch.Tensor:
    return added.expand(shape).sum(dim=axis, keepdim=True)


@rule("addmm", "baddbmm", "addmv")
def addmm(
    call: OpCall, bias: NodeValue, a: NodeValue, b: NodeValue, *, beta: int | float = 1, alpha: int | float = 1
) -> Output:
    """beta (c + t) + alpha (a + s) b."""
    product = contract(call, a, *_paired(matmul_labels(a.shape, b.shape), b))
    made = Output(scaled(product.shift, float(alpha)), times_number(product.data_shifts, float(alpha)))
    return _with_bias(call, made, bias, float(beta))


@rule("bilinear")
def bilinear(call: OpCall, a: NodeValue, b: NodeValue, weight: NodeValue, bias: NodeValue | None = None) -> Output:
    """a W b + (c + t) = (a W b + c) + t."""
    call.demand_unchanged(a, b, weight)
    return _with_bias(call, call.unmoved(), bias)


@rule("einsum")
def einsum(call: OpCall, equation: str, operands: Sequence[NodeValue], **_: object) -> Output:
    """A contraction of two operands without repeated or broadcast axes; other operands must not shift."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    spread = [at for at, each in enumerate(parts) if "..." in each]
    if len(spread) == 1 and len(parts) == len(operands):  # of two, one may be broadcast
        axes = len(operands[spread[0]].shape) - len(parts[spread[0]].replace("...", ""))
        hidden = "".join(chr(ord("À") + axis) for axis in range(axes))
        parts, right = [each.replace("...", hidden) for each in parts], right.replace("...", hidden)
    plain = bool(arrow) and "." not in "".join((*parts, right)) and all(len(set(each)) == len(each) for each in parts)
    if not plain or len(operands) != 2:
        call.demand_unchanged(*operands)
        return call.unmoved()
    names = {letter: at for at, letter in enumerate(dict.fromkeys("".join(parts) + right))}
    la, lb, lo = ([names[letter] for letter in part] for part in (*parts, right))
    return contract(call, operands[0], la, operands[1], lb, lo)


@rule("outer", "ger")
def outer(call: OpCall, a: NodeValue, b: NodeValue) -> Output:
    """A contraction over no axis."""
    return contract(call, a, [0], b, [1], [0, 1])
