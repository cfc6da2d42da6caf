r"""Steps to equal loss: how many steps one model needs for the loss that the other ends with, from curves that exist.

Of two models, let B end with the higher mean loss, L, at step T_B. The mean curve of the other, A, interpolated linearly in log
steps, first goes below L at step t. So A has after t steps what B has after T_B, and a step of A is worth T_B / t of B's. The
ratio is given for the variant: below 1 where the variant is B.

With u_s = (L_B,s - L_A,s(t)) the difference of the two at that point, per seed, and g the slope of A's mean curve over log
steps,

    Var(log t) = Var(mean of u) / g^2,

on n - 1 degrees of freedom where both share seeds, and Satterthwaite's otherwise.

A loss before the end of a run with a falling learning rate is higher than that of a run which was planned to be so short. So t
is too large for the model that is ahead, and the ratio is nearer to 1 than for runs planned to that length.

Source: the delta method: any text.
Differs from the source: nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from addnorm.errors import InputError
from addnorm.fields import JsonFields

Curve = Mapping[float, float]
"""Loss by step."""


@dataclass(frozen=True, kw_only=True)
class EqualLoss(JsonFields):
    """A step of the variant is worth `worth` steps of the reference."""

    worth: float
    interval: tuple[float, float] | None
    """None with a single run of each."""
    loss: float
    """The higher of the two mean losses at the end."""
    steps: float
    """Steps of the variant to that loss."""
    reference_steps: float
    df: float | None


def steps_to_equal_loss(
    variant: Mapping[int, Curve], reference: Mapping[int, Curve], *, confidence: float = 0.95
) -> EqualLoss:
    """Steps of the variant and of the reference to the higher of their final losses.

    Args:
        variant: curve of each seed; steps that all of them have count.
        reference: of the reference.
        confidence: of the interval.

    Raises:
        InputError: fewer than two common steps, a loss that is not finite, or a curve that never reaches the loss after step 0.

    Example:
        >>> base = {seed: {step: 4 - np.log10(step) + 0.01 * seed for step in (100, 300, 1000)} for seed in (0, 1, 2)}
        >>> fast = {seed: {step: 3.9 - np.log10(step) + 0.01 * seed for step in (100, 300, 1000)} for seed in (0, 1, 2)}
        >>> found = steps_to_equal_loss(fast, base)
        >>> round(found.worth, 3), round(found.steps), found.reference_steps
        (1.259, 794, 1000.0)
    """
    steps, losses = zip(
        *(_matrix(curves, name) for curves, name in ((variant, "variant"), (reference, "reference"))), strict=True
    )
    ends = [float(each[:, -1].mean()) for each in losses]
    ahead = int(ends[1] < ends[0])  # 0 if the variant is ahead
    behind = 1 - ahead
    loss = ends[behind]
    place, share, crossing, slope = _crossing(steps[ahead], losses[ahead].mean(axis=0), loss)
    at_crossing = (1 - share) * losses[ahead][:, place] + share * losses[ahead][:, place + 1]
    variance, df = _variance(losses[behind][:, -1], at_crossing, shared=variant.keys() == reference.keys())
    taken = [0.0, 0.0]
    taken[ahead], taken[behind] = crossing, float(steps[behind][-1])
    log = math.log(taken[1] / taken[0])
    interval = None
    if df is not None and variance > 0:
        half = float(stdtrit(df, (1 + confidence) / 2)) * math.sqrt(variance) / abs(slope)
        interval = (math.exp(log - half), math.exp(log + half))
    return EqualLoss(
        worth=math.exp(log),
        interval=interval,
        loss=loss,
        steps=taken[0],
        reference_steps=taken[1],
        df=df if interval is not None else None,
    )


def _matrix(curves: Mapping[int, Curve], name: str) -> tuple[np.ndarray, Float[np.ndarray, "seed step"]]:
    if not all(math.isfinite(loss) for curve in curves.values() for loss in curve.values()):
        raise InputError(
            f"{name}: expected finite losses, got one that is not. Leave out the variant whose run diverged."
        )
    common = sorted(set.intersection(*(set(curve) for curve in curves.values())) - {0.0})
    if len(common) < 2:
        raise InputError(
            f"{name}: expected at least two steps that all its runs have a loss at, got {len(common)}. Evaluate all runs at "
            "the same steps."
        )
    return np.array(common), np.array([[curves[seed][step] for step in common] for seed in sorted(curves)])


def _crossing(steps: np.ndarray, mean: np.ndarray, loss: float) -> tuple[int, float, float, float]:
    """Place of the step before the curve first goes below a loss, the share of the way to the next, the step, and the slope."""
    below = np.flatnonzero(mean <= loss)
    place = int(below[0]) - 1
    if place < 0:
        raise InputError(
            f"steps: expected curves that begin above the loss {loss:.4g} which is compared, got {mean[0]:.4g} at step "
            f"{steps[0]:.10g}. Evaluate earlier in training too."
        )
    share = float((mean[place] - loss) / (mean[place] - mean[place + 1]))
    logs = np.log(steps[place : place + 2])
    slope = float((mean[place + 1] - mean[place]) / (logs[1] - logs[0]))
    return place, share, float(np.exp(logs[0] + share * (logs[1] - logs[0]))), slope


def _variance(one: np.ndarray, other: np.ndarray, *, shared: bool) -> tuple[float, float | None]:
    """Variance of the difference of two means, and its degrees of freedom."""
    if min(one.size, other.size) < 2:
        return 0.0, None
    if shared:
        return float((one - other).var(ddof=1) / one.size), float(one.size - 1)
    parts = [each.var(ddof=1) / each.size for each in (one, other)]
    squares = sum(part**2 / (each.size - 1) for part, each in zip(parts, (one, other), strict=True))
    return float(sum(parts)), float(sum(parts) ** 2 / squares) if squares else None
