"""Linear maps and matrix products, all as one contraction over named axes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch

from addnorm.redundancy.algebra.null_space import null_space
from addnorm.redundancy.graph.reshaping import permuted, picked
from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.rules.arithmetic import born, lifted
from addnorm.redundancy.graph.shift import (
    EPS,
    LARGEST_MAP,
    Dense,
    Diagonal,
    Shift,
    Term,
    TooLarge,
    scaled,
    still,
    through,
)
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.value import Escape, Loose, Out, Plane, Value

Labels = list[int]


def contract(site: Site, a: Value, la: Labels, b: Value, lb: Labels, lo: Labels) -> Out:
    """sum over the labels that `lo` lacks of a[la] * b[lb].

    A known factor multiplies the shift. Two data: (x + s)(y + t) - xy = s (y + t) + x t; the first is unknown but,
    along axes that y does not have, constant where s is. If y's sum over the summed axis is known (softmax rows) and s
    is constant along it, s passes whole."""
    for value in (a, b):
        if value.masked and value.moves:
            site.unchanged(a, b)
            return site.still()
    if a.known is not None and not a.moves and b.known is None:
        return _known(site, b, lb, a.known, la, lo)
    if b.known is not None and not b.moves:
        return _known(site, a, la, b.known, lb, lo)
    shift, loose = still(site.shape), tuple[Loose, ...]()
    for x, lx, y, ly in ((a, la, b, lb), (b, lb, a, la)):
        bare = {label: at for at, label in enumerate(lx) if label in lo and _unit(y, ly, label)}
        axes = {lo.index(label): at for label, at in bare.items()}
        for each in x.loose:
            loose += (each.turned({at: to for to, at in axes.items()}),)
        if not x.shift:
            continue
        summed = [label for label in dict.fromkeys([*lx, *ly]) if label not in lo]
        whole = y.sums.get(ly.index(summed[0])) if len(summed) == 1 and summed[0] in ly else None
        if whole is not None and summed[0] in lx and not y.moves:
            at = lx.index(summed[0])
            level = site.constant(x.shift, [at])
            one = picked(level, at, torch.tensor([0]))
            shift = plus(shift, _einsum(one, lx, whole, ly, lo, site.shape), site.shape)
        else:
            loose += (Loose(x.shift, axes, _escape(x, lx, y, ly, lo), born()),)
    return Out(site.now(shift), loose)


def _escape(x: Value, lx: Labels, y: Value, ly: Labels, lo: Labels) -> Escape | None:
    """A shift of x along a normal of y's plane meets the same number in every y."""
    summed = [label for label in dict.fromkeys([*lx, *ly]) if label not in lo]
    if y.plane is None or len(summed) != 1 or lx[-1:] != summed or ly.index(summed[0]) != y.plane.axis:
        return None
    normals = y.plane.normals()
    if not len(normals):
        return None
    own = frozenset(lo.index(label) for label in ly if label in lo and label not in lx)
    return Escape(through(x.shift, off(normals), x.shape), own)


def off(normals: torch.Tensor) -> torch.Tensor:
    """The projection off orthonormal rows, [entries, entries]."""
    return torch.eye(normals.shape[1], dtype=torch.float64) - normals.T @ normals


def _turned_plane(plane: Plane | None, weight: torch.Tensor, axis: int) -> Plane:
    """Of W y for a known W [out, in]: the normals c for which c W is a normal of y, or zero."""

    @cache
    def normals() -> torch.Tensor:
        columns = weight.to(torch.float64)
        kept = plane.normals() if plane is not None else columns.new_zeros(0, columns.shape[1])
        if columns.shape[0] < columns.shape[1] - len(kept):  # so few rows of a generic W meet no normal
            return columns.new_zeros(0, columns.shape[0])
        return torch.from_numpy(null_space((off(kept) @ columns.T).numpy()).T)

    return Plane(axis, normals)


def _unit(value: Value, labels: Labels, label: int) -> bool:
    return label not in labels or value.shape[labels.index(label)] == 1


def _known(site: Site, value: Value, labels: Labels, known: torch.Tensor, theirs: Labels, lo: Labels) -> Out:
    known = known.to(torch.float64)
    absent = [label for label in labels if label in lo and label not in theirs]
    axes = {labels.index(label): lo.index(label) for label in absent}
    loose = tuple(each.turned(axes) for each in value.loose)
    sums = {}
    for axis, total in value.sums.items():
        if axis in axes:
            shape = tuple(1 if at == axis else size for at, size in enumerate(value.shape))
            product = torch.einsum(total.expand(shape), labels, known, theirs, lo)
            sums[axes[axis]] = product
    if not value.shift:
        return Out(still(site.shape), loose, sums)
    return Out(_einsum(value.shift, labels, known, theirs, lo, site.shape), loose, sums)


def _einsum(
    shift: Shift, labels: Labels, known: torch.Tensor, theirs: Labels, lo: Labels, shape: tuple[int, ...]
) -> Shift:
    """The contraction applied to the map; axes not summed stay reduced."""
    last = labels[-1]
    plain = last not in lo and known.dim() == 2 and theirs[0] == last and lo == [*labels[:-1], theirs[1]]
    if plain:
        return through(shift, known, shape)
    used = {label for label in labels if label not in lo}
    block = 1 + max([*labels, *theirs, *lo])
    gain = float(known.abs().max()) if known.numel() else 0.0
    for label in used:
        gain *= shift.shape[labels.index(label)] ** 0.5
    terms: dict[int, Term] = {}
    for name, term in shift.terms.items():
        given = term.dense() if isinstance(term, Diagonal) else term
        wide = [shift.shape[at] if label in used else given.reduced[at] for at, label in enumerate(labels)]
        out = [len(given.numbers)]
        for label in lo:
            size = wide[labels.index(label)] if label in labels else 1
            out.append(max(size, known.shape[theirs.index(label)] if label in theirs else 1))
        numbers = 1
        for size in out:
            numbers *= size
        if numbers > LARGEST_MAP:
            raise TooLarge
        spelt = given.numbers.expand(len(given.numbers), *wide)
        product = torch.einsum(spelt, [block, *labels], known, theirs, [block, *lo])
        noise = term.noise * gain + 4 * EPS * gain * float(given.numbers.abs().max())
        terms[name] = Dense(product, noise, condition=given.condition)
    return Shift(shape, terms)


def matmul_labels(a: Sequence[int], b: Sequence[int]) -> tuple[Labels, Labels, Labels]:
    """Labels of torch.matmul for two shapes: summed 0, rows 1, columns 2, batch axes counted from the right from 3
    on.
    """
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
    mine, theirs = batch[more - len(a) + 2 :], batch[more - len(b) + 2 :]
    return [*mine, 1, 0], [*theirs, 0, 2], [*batch, 1, 2]


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__", "linalg_vecdot")
def matmul(site: Site, a: Value, b: Value, *_: object, **__: object) -> Out:
    """A contraction over the last axis of a and the last but one of b (see `contract`)."""
    return contract(site, a, *_paired(matmul_labels(a.shape, b.shape), b))


def _paired(labels: tuple[Labels, Labels, Labels], b: Value) -> tuple[Labels, Value, Labels, Labels]:
    return labels[0], b, labels[1], labels[2]


@rule("linear", always=True)
def linear(site: Site, value: Value, weight: Value, bias: Value | None = None) -> Out:
    """W (x + s) + (b + t) = (W x + b) + (W s + t)."""
    dims = len(value.shape)
    batch = [2 + at for at in range(dims - 1)]
    product = contract(site, value, [*batch, 0], _turned(weight), [0, 1], [*batch, 1])
    out = _with_bias(site, product, bias)
    along = value.plane is None or value.plane.axis == dims - 1
    if weight.known is not None and not weight.moves and (bias is None or bias.known is not None) and along:
        return replace(out, plane=_turned_plane(value.plane, weight.known, dims - 1))
    return out


def _turned(weight: Value) -> Value:
    """The transpose of a matrix."""
    known = None if weight.known is None else weight.known.T
    loose = tuple(each.turned({0: 1, 1: 0}) for each in weight.loose)
    return Value(weight.shape[::-1], permuted(weight.shift, [1, 0]), known, loose)


def _with_bias(site: Site, product: Out, bias: Value | None, factor: float = 1.0) -> Out:
    if bias is None:
        return product
    if not factor:
        return product
    loose = (*product.loose, *lifted(bias.loose, len(site.shape), site.shape, bias.shape))
    sums = {}
    if bias.known is not None:
        added = bias.known.to(torch.float64) * factor
        sums = {axis: total + _total(added, axis, site.shape) for axis, total in product.sums.items()}
    shift = plus(site.now(product.shift), bias.shift, site.shape, factor)
    return Out(shift, loose, sums, masked=bias.masked)


def _total(added: torch.Tensor, axis: int, shape: tuple[int, ...]) -> torch.Tensor:
    return added.expand(shape).sum(dim=axis, keepdim=True)


@rule("addmm", "baddbmm", "addmv")
def addmm(site: Site, bias: Value, a: Value, b: Value, *, beta: int | float = 1, alpha: int | float = 1) -> Out:
    """beta (c + t) + alpha (a + s) b."""
    product = contract(site, a, *_paired(matmul_labels(a.shape, b.shape), b))
    scaled_product = Out(scaled(product.shift, float(alpha)), product.loose)
    if not alpha:
        scaled_product = Out(still(site.shape))
    return _with_bias(site, scaled_product, bias, float(beta))


@rule("bilinear")
def bilinear(site: Site, a: Value, b: Value, weight: Value, bias: Value | None = None) -> Out:
    """a W b + (c + t) = (a W b + c) + t."""
    site.unchanged(a, b, weight)
    return _with_bias(site, site.still(), bias)


@rule("einsum")
def einsum(site: Site, equation: str, operands: Sequence[Value], **_: object) -> Out:
    """A contraction of two operands without repeated or broadcast axes; anything else must not move."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    plain = bool(arrow) and "." not in equation and all(len(set(each)) == len(each) for each in parts)
    if not plain or len(operands) != 2:
        site.unchanged(*operands)
        return site.still()
    names = {letter: at for at, letter in enumerate(dict.fromkeys("".join(parts) + right))}
    la, lb, lo = ([names[letter] for letter in part] for part in (*parts, right))
    return contract(site, operands[0], la, operands[1], lb, lo)


@rule("outer", "ger")
def outer(site: Site, a: Value, b: Value) -> Out:
    """A contraction over nothing."""
    return contract(site, a, [0], b, [1], [0, 1])
