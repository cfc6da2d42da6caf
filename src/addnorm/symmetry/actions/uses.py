"""The uses of weights: how a weight flows when the actions around it are held constant.

With constant actions every use is an affine flow of its weight, such as dW/dt = A' W - W A + d φ, whose solution is a power
series that converges for every t (exp(tA') W exp(-tA) without the last term). That series is the finite move.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers
from addnorm.symmetry.actions.values import Space

Generator = Callable[[Ids], Numbers]
"""The numbers of unknowns, zero for `ZERO`."""
Point = Callable[[Ids, Numbers], Numbers]
"""The numbers of weights by their tangents; the given ones where a tangent is `ZERO`, or zero in an increment."""
Flow = list[tuple[Ids, Numbers]]
"""Tangents and their numbers."""


@dataclass(frozen=True, eq=False)
class MapUse:
    """y = W C X + c."""

    before: Space
    forms: Numbers
    weight: Ids
    numbers: Numbers
    bias: Ids
    constants: Numbers
    linear: Ids
    shift: Ids
    sources: list[tuple[Ids, Numbers]]
    """Free shifts: φ, and the direction of the result along which it is added."""
    multiples: list[tuple[Ids, tuple[Numbers, float]]]

    def flow(self, of: Generator, point: Point, *, affine: bool) -> Flow:
        """The derivative; with `affine` also the part that does not depend on the weights."""
        weight, constants = point(self.weight, self.numbers), point(self.bias, self.constants)
        image, after = weight @ self.forms, of(self.linear)
        moved = after @ image - image @ of(self.before.linear)
        shifted = after @ constants - image @ of(self.before.shift)
        if affine and self._only_shifted(of):
            moved = self._along_moving_forms(of)
        elif affine:
            for source, direction in self.sources:
                moved = moved + np.outer(direction, of(source))
            shifted = shifted + of(self.shift)
            for multiple, (null, constant) in self.multiples:
                moved = moved + np.outer(of(multiple), null)
                # The shift b moves V x + k by V b; the series' second term has the other half, from W b.
                shifted = shifted + of(multiple) * (constant - 0.5 * float(null @ of(self.before.shift)))
        return [(self.weight, moved @ np.linalg.pinv(self.forms)), (self.bias, shifted)]

    def keeps_fixed_entries(self, of: Generator) -> bool:
        """True if entries that are fixed beside others that move, such as the zeros between groups, stay so all along a move.

        Of A' W - W A + d φ = 0 at a fixed entry, the weights beside it move on. That the second term of the series vanishes
        there, too, is asked here.
        """
        fixed = self.weight == ZERO
        if fixed.all() or not fixed.any():
            return True
        (_, moved), (_, shifted) = self.flow(of, lambda ids, at: at, affine=True)
        (_, again), _ = self.flow(of, lambda ids, at: moved if ids is self.weight else shifted, affine=False)
        return bool(np.abs(again[fixed]).max() <= 1e-9 * max(1.0, float(np.abs(moved).max())))

    def _only_shifted(self, of: Generator) -> bool:
        """True if a shift of x is undone along null forms of x alone, without the help of a bias."""
        return (
            any(bool(of(each).any()) for each, _ in self.multiples)
            and bool((self.bias == ZERO).all())
            and bool(of(self.before.shift).any())
            and not any(
                bool(of(each).any()) for each in (self.linear, self.before.linear, *(each for each, _ in self.sources))
            )
        )

    def _along_moving_forms(self, of: Generator) -> Numbers:
        """The whole finite change of W C where a shift b of x is undone along null forms V x + k = 0.

        The shift moves their constants, so that the multiples M that are right to first order, M k = W b - b', are not
        afterwards. From (W + N V)(x + b) = W x + b' follows N c = b' - W b with c = V b - k. Of all such N the one nearest to
        M is M - (M V b) c / |c|².
        """
        forms = np.stack([null for _, (null, _) in self.multiples])
        constants = np.array([constant for _, (_, constant) in self.multiples])
        multiples = np.stack([of(each) for each, _ in self.multiples], 1)
        moved = forms @ of(self.before.shift)
        after = moved - constants
        size = float(after @ after)
        if size:
            multiples = multiples - np.outer(multiples @ moved, after) / size
        change: Numbers = multiples @ forms
        return change


@dataclass(frozen=True, eq=False)
class GainUse:
    """z = P x, entry by entry."""

    before: Ids
    after: Ids
    weight: Ids
    numbers: Numbers
    mixed: Ids
    """A, [n, n]."""

    def flow(self, of: Generator, point: Point, *, affine: bool) -> Flow:
        """The derivative."""
        del affine
        return [(self.weight, (of(self.after) - of(self.before)) * point(self.weight, self.numbers))]


@dataclass(frozen=True, eq=False)
class ShiftUse:
    """z = x + factor P."""

    before: Space
    after: Ids
    weight: Ids
    numbers: Numbers
    """factor P."""
    factor: float
    source: int

    def flow(self, of: Generator, point: Point, *, affine: bool) -> Flow:
        """The derivative; with `affine` also the part that does not depend on the weights."""
        at = point(self.weight, self.numbers / self.factor) * self.factor
        moved = of(self.before.linear) @ at
        if affine:
            moved = moved + of(self.after) - of(self.before.shift)
            if self.source != ZERO:
                moved = moved + of(np.array([self.source]))[0]
        return [(self.weight, moved / self.factor)]


Use = MapUse | GainUse | ShiftUse


@dataclass(frozen=True, eq=False)
class Derived:
    """Weights computed from others by an operation."""

    made: Ids
    sources: tuple[Ids, ...]
    function: Callable[[tuple[Tensor, ...]], Tensor]
    numbers: tuple[Tensor, ...]
    """The sources' numbers, for entries that do not move."""
