"""The uses of weights: how a weight flows when the actions around it are held constant.

With constant actions every use is an affine flow of its weight, such as dW/dt = A' W - W A + 1 φ, whose solution is a power
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
    sources: Ids
    multiples: list[tuple[Ids, tuple[Numbers, float]]]

    def flow(self, of: Generator, point: Point, *, affine: bool) -> Flow:
        """The derivative; with `affine` also the part that does not depend on the weights."""
        weight, constants = point(self.weight, self.numbers), point(self.bias, self.constants)
        image, after = weight @ self.forms, of(self.linear)
        moved = after @ image - image @ of(self.before.linear)
        shifted = after @ constants - image @ of(self.before.shift)
        if affine and self._only_shifted(of):
            (_, (null, constant)), *_ = self.multiples
            before = of(self.before.shift)
            along = (image @ before - of(self.shift)) / (constant - null @ before)
            moved = np.outer(along, null)
        elif affine:
            moved = moved + of(self.sources)[None]
            shifted = shifted + of(self.shift)
            for multiple, (null, constant) in self.multiples:
                moved = moved + np.outer(of(multiple), null)
                shifted = shifted + of(multiple) * constant
        return [(self.weight, moved @ np.linalg.pinv(self.forms)), (self.bias, shifted)]

    def _only_shifted(self, of: Generator) -> bool:
        """True if a shift of x is undone along the null form of x alone.

        The shift moves the null form's constant k, so that no constant multiple will do: from W' (x + b) = W x + b' with
        W' = W + u vᵀ and v·x + k = 0 follows u = (W b - b') / (k - v·b).
        """
        return (
            len(self.multiples) == 1
            and bool(of(self.multiples[0][0]).any())
            and bool((self.bias == ZERO).all())
            and bool(of(self.before.shift).any())
            and not any(bool(of(each).any()) for each in (self.linear, self.before.linear, self.sources))
        )


@dataclass(frozen=True, eq=False)
class GainUse:
    """z = P x, entry by entry."""

    before: Ids
    after: Ids
    weight: Ids
    numbers: Numbers

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
