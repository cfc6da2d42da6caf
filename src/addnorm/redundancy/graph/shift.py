r"""Shift of a value: one linear map per block of free coordinates, from the block to the value.

Two representations keep maps small. Along axes where a map is constant it has size 1 ("reduced"), so that a bias of
width d added to [batch, tokens, d] costs d x d numbers whatever the batch. As long as coordinate i moves entry i of one
axis, only a scale per entry is stored (`DiagonalTerm`), so that a vocabulary's bias costs its own size.

Every map carries an estimate of its rounding error (`noise`). Entries below it count as zero, since cancellation leaves
that much; entries above it count as a dependence. The estimate is the expected size of independent errors (root of the
sum of squares), not their worst case: in a deep stack of linear maps a bound would exceed the numbers themselves, and a
dependence that counts as rounding would be a false proof. Rounding that counts as a dependence only hides freedom.
Checked by tests/redundancy/test_chains.py (deep stacks) and test_seeds.py (the same counts for other weights).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, prod

import torch

from addnorm.redundancy.algebra.rank import conditioned

EPS = 2.0**-52
LARGEST_MAP = 2**27
"""Largest size of one map (1 GiB). Beyond it the value is demanded not to move, which is always sound."""


class TooLarge(Exception):
    """A map would need more memory than allowed."""


@dataclass(frozen=True)
class DenseTerm:
    """A map as a dense tensor, float64 [block, *reduced]."""

    numbers: torch.Tensor
    noise: float
    regular: bool = False
    """True if it is proved, factor by factor, that every move of the block changes the value. A product of regular factors is
    regular however badly it is conditioned, although its computed singular values may not show it."""
    condition: float = 1.0
    """Upper bound of the ratio of the largest singular value to the smallest one that is not zero: the product over all
    factors."""

    @property
    def reduced(self) -> tuple[int, ...]:
        """Sizes of the value's axes, 1 where the map is constant."""
        return tuple(self.numbers.shape[1:])


@dataclass(frozen=True)
class DiagonalTerm:
    """Coordinate i moves entry i of one axis by `scale[i]`, and equally along all other axes."""

    scale: torch.Tensor
    axis: int
    dims: int
    noise: float

    @property
    def reduced(self) -> tuple[int, ...]:
        """As for `DenseTerm`."""
        return tuple(len(self.scale) if at == self.axis else 1 for at in range(self.dims))

    def dense(self) -> DenseTerm:
        """Convert to a dense tensor."""
        _check(len(self.scale) ** 2)
        numbers = torch.diag(self.scale).reshape(len(self.scale), *self.reduced)
        return DenseTerm(numbers, self.noise, self.regular, self.condition)

    @property
    def regular(self) -> bool:
        """As for `DenseTerm`."""
        return bool(self.scale.all())

    @property
    def condition(self) -> float:
        """As for `DenseTerm`: no matrix is a factor."""
        return 1.0


Term = DenseTerm | DiagonalTerm


@dataclass(frozen=True)
class Shift:
    """The shift of one value."""

    shape: tuple[int, ...]
    """Shape of the value."""
    terms: Mapping[int, Term]
    """Maps by block; each has as many axes as the value."""

    def __bool__(self) -> bool:
        return bool(self.terms)

    def dense(self) -> dict[int, DenseTerm]:
        """Return all maps as dense tensors."""
        return {block: term.dense() if isinstance(term, DiagonalTerm) else term for block, term in self.terms.items()}

    def reduced(self) -> tuple[int, ...]:
        """Return the sizes of the axes along which some map varies, 1 for the others."""
        return tuple(torch.broadcast_shapes(*(term.reduced for term in self.terms.values()))) if self.terms else ()


def _check(numbers: int) -> None:
    if numbers > LARGEST_MAP:
        raise TooLarge


def zero_shift(shape: Sequence[int]) -> Shift:
    """Return the shift of a value that does not move."""
    return Shift(tuple(shape), {})


def _largest(numbers: torch.Tensor) -> float:
    return float(numbers.abs().max()) if numbers.numel() else 0.0


def broadcast(shift: Shift, shape: Sequence[int]) -> Shift:
    """Broadcast a shift to a shape with the same trailing axes."""
    more = len(shape) - len(shift.shape)
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if isinstance(term, DiagonalTerm):
            terms[block] = DiagonalTerm(term.scale, term.axis + more, len(shape), term.noise)
        else:
            numbers = term.numbers.reshape(len(term.numbers), *(1,) * more, *term.reduced)
            terms[block] = replace(term, numbers=numbers)
    return Shift(tuple(shape), terms)


def add(first: Shift, second: Shift, shape: Sequence[int], factor: float = 1.0) -> Shift:
    """Return first + factor * second, broadcast to `shape`."""
    left, right = broadcast(first, shape), scaled(broadcast(second, shape), factor)
    terms = dict(left.terms)
    for block, term in right.terms.items():
        terms[block] = _sum(terms[block], term) if block in terms else term
    return Shift(tuple(shape), terms)


def _sum(a: Term, b: Term) -> Term:
    if isinstance(a, DiagonalTerm) and isinstance(b, DiagonalTerm) and a.axis == b.axis:
        size = max(_largest(a.scale), _largest(b.scale))
        return DiagonalTerm(a.scale + b.scale, a.axis, a.dims, hypot(a.noise, b.noise) + EPS * size)
    x = a.dense() if isinstance(a, DiagonalTerm) else a
    y = b.dense() if isinstance(b, DiagonalTerm) else b
    _check(len(x.numbers) * prod(torch.broadcast_shapes(x.reduced, y.reduced)))
    # Neither `regular` nor a smaller noise follows from the summands: x - x is a sum of two regular maps.
    size = max(_largest(x.numbers), _largest(y.numbers))
    noise = hypot(x.noise, y.noise) + EPS * size
    return DenseTerm(x.numbers + y.numbers, noise, condition=max(x.condition, y.condition))


def scaled(shift: Shift, factor: float) -> Shift:
    """Return factor * shift."""
    if factor == 1.0:
        return shift
    if factor == 0.0:
        return zero_shift(shift.shape)
    size, terms = abs(factor), dict[int, Term]()
    for block, term in shift.terms.items():
        noise = term.noise * size
        if isinstance(term, DiagonalTerm):
            terms[block] = DiagonalTerm(term.scale * factor, term.axis, term.dims, noise)
        else:
            terms[block] = replace(term, numbers=term.numbers * factor, noise=noise)
    return Shift(shift.shape, terms)


def times(shift: Shift, factor: torch.Tensor, shape: Sequence[int]) -> Shift:
    """Return shift * factor for known numbers, both broadcast to `shape`."""
    wide, known = broadcast(shift, shape), compact(factor.to(torch.float64), len(shape))
    terms: dict[int, Term] = {}
    size = _largest(known)
    for block, term in wide.terms.items():
        if isinstance(term, DiagonalTerm):
            # A factor that varies along the diagonal's own axis, or nowhere, scales the diagonal. This keeps a
            # vocabulary's bias from becoming a matrix behind every scale.
            along = [at for at in range(term.dims) if known.shape[at] > 1]
            if along in ([], [term.axis]):
                noise = term.noise * size
                terms[block] = DiagonalTerm(term.scale * known.reshape(-1), term.axis, term.dims, noise)
                continue
            term = term.dense()
        _check(len(term.numbers) * prod(torch.broadcast_shapes(term.reduced, tuple(known.shape))))
        regular = term.regular and bool(known.all())
        terms[block] = DenseTerm(term.numbers * known, term.noise * size, regular, term.condition)
    return Shift(tuple(shape), terms)


def compact(known: torch.Tensor, dims: int) -> torch.Tensor:
    """Return known numbers with `dims` axes, of size 1 where they are constant."""
    known = known.reshape((1,) * (dims - known.dim()) + tuple(known.shape))
    for at in range(dims):
        if known.shape[at] > 1 and (known.stride(at) == 0 or bool((known == known.narrow(at, 0, 1)).all())):
            known = known.narrow(at, 0, 1)
    return known


def times_matrix(shift: Shift, weight: torch.Tensor, shape: Sequence[int]) -> Shift:
    """Return shift @ weight over the last axis, weight float64 [in, out]."""
    # Independent errors of a row's entries, weighted by a column, add up to the column's norm.
    gain = float(weight.norm(dim=0).max()) if weight.numel() else 0.0
    full, condition = conditioned(weight.numpy()) if shift else (False, 1.0)
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        last = term.dims - 1 if isinstance(term, DiagonalTerm) else len(term.reduced) - 1
        if isinstance(term, DiagonalTerm) and term.axis == last:
            _check(weight.numel())
            numbers = (term.scale[:, None] * weight).reshape(len(weight), *(1,) * last, weight.shape[1])
            size = _largest(term.scale)
        else:
            given = (term.dense() if isinstance(term, DiagonalTerm) else term).numbers
            whole = given.expand(*given.shape[:-1], weight.shape[0])
            _check(whole.numel() // max(weight.shape[0], 1) * weight.shape[1])
            numbers, size = whole @ weight, _largest(given)
        noise = term.noise * gain + 4 * EPS * gain * size
        terms[block] = DenseTerm(numbers, noise, term.regular and full, term.condition * condition)
    return Shift(tuple(shape), terms)


def mapped(shift: Shift, op: Callable[[torch.Tensor], torch.Tensor], shape: Sequence[int], gain: float = 1.0) -> Shift:
    """Apply a linear operation to the map of every coordinate, expanded to the value's full shape.

    Args:
        op: a linear operation from one value to another.
        gain: bound of the factor by which it increases the largest number.
    """
    terms: dict[int, Term] = {}
    for block, term in shift.dense().items():
        _check(len(term.numbers) * max(prod(shift.shape), prod(shape)))
        whole = term.numbers.expand(len(term.numbers), *shift.shape)
        numbers = torch.stack([op(each) for each in whole]) if len(whole) <= 4 else torch.vmap(op)(whole)
        noise = term.noise * gain + (0.0 if gain == 1.0 else 4 * EPS * gain * _largest(term.numbers))
        terms[block] = DenseTerm(reduce_equal(numbers), noise, condition=term.condition)
    return Shift(tuple(shape), terms)


def reduce_equal(numbers: torch.Tensor) -> torch.Tensor:
    """Reduce the axes of [block, *axes] along which all entries are exactly equal to size 1."""
    for at in range(1, numbers.dim()):
        if numbers.shape[at] > 1 and bool((numbers == numbers.narrow(at, 0, 1)).all()):
            numbers = numbers.narrow(at, 0, 1)
    return numbers.contiguous()


def without_rounding(shift: Shift) -> Shift:
    """Set the entries of a shift that are rounding errors to zero, and drop the maps without other entries."""
    # A regular map is kept whatever its size: a product of many small regular factors may fall below the noise
    # estimate, and to drop it would claim that a bias in front of them is redundant (tests/redundancy/test_chains.py).
    terms: dict[int, Term] = {}
    for block, term in shift.terms.items():
        if isinstance(term, DiagonalTerm):
            # `noise` is an expected size. Among some thousand entries the largest error is a few times that, hence the
            # factor 8.
            kept = torch.where(term.scale.abs() <= 8 * term.noise, 0.0, term.scale)
            if kept.any():
                terms[block] = DiagonalTerm(kept, term.axis, term.dims, term.noise)
        else:
            kept = torch.where(term.numbers.abs() <= 8 * term.noise, 0.0, term.numbers) if term.noise else term.numbers
            if kept.any():
                terms[block] = replace(term, numbers=kept)
            elif term.regular:
                terms[block] = term
    return Shift(shift.shape, terms)
