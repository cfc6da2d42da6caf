"""Rounding of a rewrite's stored sums: whether it explains what a null vector leaves of a difference.

A rewrite adds a null vector δ to biases a, in float64, and rounds the sums once when it stores them. If either of two
models may be the result of a rewrite, their biases differ by

    b - a = δ + ε,     |ε_j| ≤ h_j = half a unit in the last place of a_j plus half a unit in that of b_j

ε_j is the sum of two errors that are uniform within these halves, with the variance σ_j². With w_j = 1 / σ_j, what is left
of W (b - a) outside of W N, the weighted null space, is (I - P) W ε, where P is the orthogonal projection on W N. Two
bounds follow from the leverages p_i = P_ii, since Σ_{j≠i} P_ij² = p_i - p_i²:

    each entry       |((I - P) W ε)_i| ≤ (1 - p_i) w_i h_i + t √(p_i (1 - p_i))
    all together     |(I - P) W ε|²    ≤ k + 2 √(k x) + 2 x,     k = Σ_i (1 - p_i),  x = t² / 2

Sums of uniform numbers are strictly sub-Gaussian, so that each bound fails with a probability below 2 exp(-t² / 2), 5e-11
for t = 7 (Hsu, Kakade and Zhang 2012, arXiv:1110.2842). Where |δ_j| is below half a unit and b_j = a_j, ε_j = -δ_j is not
random. The second bound is therefore at least Σ w_j² max(h_a, h_b)_j², which no single rounding of any kind exceeds.

Rounding is an explanation only where a rewrite is visible: removing a bias moves it by its own size, more than a hundred
units in the last place, and a canonical form is orthogonal to N. Elsewhere ε = 0: a small update of biases is an update.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_DEVIATIONS = 7.0
"""t above."""
_VISIBLE_UNITS = 16
"""Units in the last place by which a rewrite moves some entry: bfloat16 has the fewest in a number, 128 to 256."""
_UNMOVED = 1e-10
"""Length of an entry's row in the orthonormal basis below which no null vector moves it: the resolution of the analysis."""
_NARROWEST = 1e-6
"""Smallest deviation relative to the largest, so that the weights' range stays within float64's digits."""
_ZEROED_UNITS = 16
"""Units of float64 in the last place of the largest number below which a rewrite writes zero."""


@dataclass(frozen=True, kw_only=True)
class RoundingTest:
    """The entry that exceeds its bound most, or comes closest to it."""

    entry: int
    difference: float
    """Part of its change that no null vector explains, as an absolute number."""
    bound: float
    errors: Tensor
    """Largest rounding error of every entry; zero for an entry that no null vector moves."""


def half_unit(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half a unit in the last place of each number in a format, in float64."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(value.double().abs().clamp_min(info.smallest_normal)).exponent
    return torch.ldexp(torch.full(value.shape, info.eps / 4, dtype=torch.float64), exponent)


def explain_by_rounding(
    basis: Tensor, numbers: tuple[Tensor, Tensor], change: Tensor, halves: tuple[Tensor, Tensor], *, size: int
) -> RoundingTest:
    """Compare a change of coupled entries with a null vector and the rounding of both models.

    Args:
        basis: orthonormal columns that span the null vectors [entry, dim].
        numbers: the entries of the first and of the second model.
        change: the second model's minus the first one's, with the effect of running means [entry].
        halves: `half_unit` of the entries of both.
        size: number of all tracked scalars, which bounds the rounding of the analysis itself.
    """
    largest = max(float(each.abs().max()) for each in numbers)
    # The sums of a fold and the projection are computed in float64.
    floor = torch.finfo(torch.float64).eps * (size * float(change.abs().max()) + _ZEROED_UNITS * largest)
    # An entry that no null vector moves is stored as it was, so that rounding excuses nothing there.
    moving = torch.linalg.vector_norm(basis, dim=1) > _UNMOVED
    widest = halves[0] + halves[1]
    canonical = any(
        float((basis.T @ each).abs().max()) <= _DEVIATIONS * float(half.max()) + floor
        for each, half in zip(numbers, halves, strict=True)
    )
    if not canonical and not bool((change.abs() > _VISIBLE_UNITS * widest).any()):
        halves, widest = (torch.zeros_like(halves[0]), torch.zeros_like(halves[1])), torch.zeros_like(widest)
    rest, bounds = change.abs(), torch.full_like(change, floor)
    deviation = ((halves[0].square() + halves[1].square()) / 3).sqrt()[moving] + floor
    # An entry of zero, or a tiny one, has hardly any rounding. Its weight would make the weighted basis singular in
    # float64.
    deviation = deviation.clamp_min(_NARROWEST * float(deviation.max()))
    columns = torch.linalg.qr(basis[moving] / deviation[:, None]).Q
    weighted = change[moving] / deviation
    left = weighted - columns @ (columns.T @ weighted)
    # The share of an entry that the fitted null vector follows: at one, nothing of its rounding is left over to be
    # seen.
    leverage = columns.square().sum(1).clamp(0.0, 1.0)
    rest[moving] = left.abs() * deviation
    bounds[moving] += (1 - leverage) * widest[moving]
    bounds[moving] += _DEVIATIONS * (leverage * (1 - leverage)).sqrt() * deviation
    # Of several entries that are too far apart, one is named that differs itself, not by projection.
    ratios = rest / bounds.clamp_min(torch.finfo(torch.float64).tiny)
    # Projection spreads one wrong entry over its component; the entry that is named is one that differs.
    own = torch.where(change == 0, 0.0, ratios)
    entry = int((own if float(own.max()) > 1 else ratios).argmax())
    difference, bound = float(rest[entry]), float(bounds[entry])
    together, allowed = float(left.square().sum()), _sum_of_squares(leverage, halves, moving, deviation)
    # Many differences that are each within their bound, but not together: a small update of all biases.
    if together > allowed and difference <= bound:
        entry = int(torch.nonzero(moving).flatten()[left.abs().argmax()])
        unit = float(((halves[0].square() + halves[1].square()) / 3).sqrt()[entry] + floor) / len(left) ** 0.5
        difference, bound = unit * together**0.5, unit * allowed**0.5
    return RoundingTest(
        entry=entry, difference=difference, bound=bound, errors=torch.where(moving, widest, torch.zeros(()).double())
    )


def _sum_of_squares(leverage: Tensor, halves: tuple[Tensor, Tensor], moving: Tensor, deviation: Tensor) -> float:
    """Largest sum of squares of the weighted rest that rounding explains."""
    free, x = float((1 - leverage).sum()), _DEVIATIONS**2 / 2
    once = torch.maximum(*halves)[moving] / deviation
    return max(free + 2 * (free * x) ** 0.5 + 2 * x, float(once.square().sum()))
