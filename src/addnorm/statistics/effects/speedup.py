r"""Worth of a variant in compute: how much of it the reference needs for the variant's loss.

The reference's loss falls with the compute C of a run, and a variant that is worth a factor m of compute has the loss that the
reference would have at m C:

    L_ref(C) = limit + A C^-alpha,          L(C) = limit + A (m C)^-alpha.

All of it is fitted jointly to the mean losses at every size, weighted by their runs: limit, A, alpha and m, with limit >= 0.
Given alpha the model is linear in limit, A and A m^-alpha, so a search over alpha is enough. Three sizes leave limit and alpha
badly determined, and m well: it is the difference of the losses over the slope of the curve between the sizes, which every pair
of limit and alpha that fits has in common. Two sizes do not determine the limit, which is 0 then.

*Limit and exponent given* (marin): A is that of each size, so that the curve goes through the reference's loss there,

    log m = mean over sizes of log( (L_ref - limit) / (L - limit) ) / alpha + log(C_ref / C).

*Interval.* log m is a smooth function of the mean losses. With g_j its derivatives by the two means at size j, and n_j seeds
that reference and variant share there,

    Var(log m) = sum_j  var_s( g_j,ref L_ref,s + g_j,own L_s ) / n_j,

each size with its own noise, on f degrees of freedom of Student's t. What the seeds at one size have in common cancels nearly:
g_j has opposite signs for the two. Without shared seeds the two parts are added. Why not one noise for all sizes: small models
are often noisier, and with noise 4 : 2 : 1 an interval of pooled noise holds the truth in 91 % only.

With parts p_i of the variance on d_i degrees of freedom, f = (sum p)^2 / sum(p^2 / (d + 1)) - 1. Satterthwaite's has 0 in place
of 1: it squares estimates as if they were the variances, and p^2 is too large by 1 + 2/d on average. With three seeds, d = 2,
that doubles the sum, and the interval covers 96.7 % of an even noise. Welch's has 2 in place of 1, which is right on average
where noise is even, and covers 93.6 % with noise 4 : 2 : 1. Between them are 94.2 to 95.7 %.

Source: Hoffmann et al. 2022, arXiv:2203.15556 (the form of the law); the delta method: any text; Satterthwaite 1946, Welch
1947 (degrees of freedom); the second form:
https://github.com/marin-community/marin/blob/main/experiments/grug/moe/agent.md.
Differs from the source: one law of compute, and an interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.effects.joint_law import CurveLaw, JointLaw
from addnorm.statistics.noise import ROUNDING

_NEAR = 1.25
"""Factor on the compute of the smallest and largest runs within which the law counts as known."""


@dataclass(frozen=True, kw_only=True)
class SizeRuns:
    """Losses of both models at one size."""

    size: str
    reference: Float[np.ndarray, " seed"]
    variant: Float[np.ndarray, " other_seed"]
    reference_compute: float
    variant_compute: float
    shared_seeds: bool = False
    """True if place s of both is one seed."""


@dataclass(frozen=True, kw_only=True)
class Speedup(JsonFields):
    """A variant's compute is worth `worth` times as much of the reference's."""

    worth: float
    interval: tuple[float, float] | None
    """None without runs that repeat others."""
    df: float | None
    law: CurveLaw | None
    """Fitted to all sizes; None if limit and exponent were given and each size has a coefficient of its own."""
    by_size: tuple[float | None, ...]
    """The worth at each size alone, by the same curve; None where the reference never reaches the loss."""
    outside: tuple[str, ...]
    """Sizes at which the reference would need compute outside the range of its runs."""


def speedup(
    sizes: Sequence[SizeRuns],
    *,
    limit: float | None = None,
    exponent: float | None = None,
    confidence: float = 0.95,
) -> Speedup:
    """Compute that the reference needs for the variant's losses, over that of the variant.

    Args:
        sizes: at least two, or one with limit and exponent given.
        limit: loss that no compute goes below; fitted unless given.
        exponent: of the law; fitted unless given.
        confidence: of the interval.

    Raises:
        InputError: too few sizes, a loss that is not finite or not above the limit, or a reference whose loss does not fall.

    Example:
        >>> sizes = [
        ...     SizeRuns(
        ...         size=f"{c:g}",
        ...         reference=np.full(3, 1.6 + 80 * c**-0.1),
        ...         variant=np.full(3, 1.6 + 80 * (1.2 * c) ** -0.1),
        ...         reference_compute=c,
        ...         variant_compute=c,
        ...     )
        ...     for c in (1e17, 1e18, 1e19)
        ... ]
        >>> round(speedup(sizes).worth, 3), round(speedup(sizes, limit=1.6, exponent=0.1).worth, 3)
        (1.2, 1.2)
    """
    _check(sizes, limit, exponent)
    means = np.array([[at.reference.mean(), at.variant.mean()] for at in sizes])
    if limit is not None and exponent is not None:
        ratios = _log_ratios(sizes, means, limit, exponent)
        estimate, law = float(ratios.mean()), None
        by_size = [math.exp(each) for each in ratios]
        derivatives = np.array([1.0, -1.0]) / ((means - limit) * exponent * len(sizes))
    else:
        fit = JointLaw(
            compute=np.array([[at.reference_compute, at.variant_compute] for at in sizes]),
            runs=np.array([[at.reference.size, at.variant.size] for at in sizes]),
            limit=limit,
            exponent=exponent,
        )
        solved = fit.solve(means)
        law, (own, other) = solved.law(0), solved.coefficients
        estimate = math.log(own / other) / law.exponent
        # log m = log(A_ref / A) / alpha.
        by_law = np.array([1 / (own * law.exponent), -1 / (other * law.exponent), -estimate / law.exponent, 0.0])
        derivatives = fit.influence(solved, by_law)
        needed = [law.compute_for(float(loss)) for loss in means[:, 1]]
        by_size = [None if c is None else c / at.variant_compute for c, at in zip(needed, sizes, strict=True)]  # type: ignore[misc]
    variance, df = _variance(sizes, derivatives)
    interval = None
    if df is not None and variance > 0:
        half = float(stdtrit(df, (1 + confidence) / 2)) * math.sqrt(variance)
        interval = (math.exp(estimate - half), math.exp(estimate + half))
    spent = [at.reference_compute for at in sizes]
    outside = [
        at.size
        for at, each in zip(sizes, by_size, strict=True)
        if each is None or not min(spent) / _NEAR <= each * at.variant_compute <= _NEAR * max(spent)
    ]
    return Speedup(
        worth=math.exp(estimate),
        interval=interval,
        df=df if interval is not None else None,
        law=law,
        by_size=tuple(by_size),
        outside=tuple(outside) if law is not None else (),
    )


def _check(sizes: Sequence[SizeRuns], limit: float | None, exponent: float | None) -> None:
    if exponent is not None and not exponent > 0:
        raise InputError(f"exponent: expected a positive number, got {exponent}.")
    if len(sizes) < 2 and (limit is None or exponent is None):
        raise InputError(
            f"speedup: expected runs at two sizes or more, got {len(sizes)}. Add a size (of a study: --size FOLDER), or give "
            "the law of the loss with --limit and --exponent."
        )
    for at in sizes:
        losses = np.concatenate([at.reference, at.variant])
        if not np.isfinite(losses).all():
            raise InputError(f"size {at.size}: expected finite losses, got a run that diverged. Leave its variant out.")
        if limit is not None and min(at.reference.mean(), at.variant.mean()) <= limit:
            raise InputError(f"limit: expected a number below every mean loss, got {limit} at size {at.size}.")
    ordered = sorted(sizes, key=lambda at: at.reference_compute)
    if len({at.reference_compute for at in sizes}) < len(sizes):
        raise InputError(
            "speedup: expected another compute at every size, got two sizes of the same. Check the column."
        )
    if len(sizes) > 1 and ordered[0].reference.mean() <= ordered[-1].reference.mean():
        raise InputError(
            f"speedup: expected a reference whose loss falls with its compute, got {ordered[0].reference.mean():.4g} at size "
            f"{ordered[0].size} and {ordered[-1].reference.mean():.4g} at size {ordered[-1].size}. Check the column of compute."
        )


def _log_ratios(sizes: Sequence[SizeRuns], means: np.ndarray, limit: float, exponent: float) -> np.ndarray:
    compute = np.log([at.reference_compute / at.variant_compute for at in sizes])
    return np.asarray(np.log((means[:, 0] - limit) / (means[:, 1] - limit)) / exponent + compute)


def _away(losses: np.ndarray) -> np.ndarray:
    """Deviations from the mean; none where they are rounding."""
    away = losses - losses.mean()
    return np.where(np.abs(away).max() > ROUNDING * np.abs(losses).max(), away, 0.0)


def _variance(sizes: Sequence[SizeRuns], derivatives: np.ndarray) -> tuple[float, float | None]:
    """Variance of log m, and its degrees of freedom; None where no run repeats another."""
    pairs = [(_away(at.reference), _away(at.variant)) for at in sizes]
    parts = []  # variance and degrees of freedom, of each size by itself
    for (own, other), g, at in zip(pairs, derivatives, sizes, strict=True):
        together = at.shared_seeds
        for away in [g[0] * own + g[1] * other] if together else [g[0] * own, g[1] * other]:
            parts.append((float(away @ away), away.size, away.size - 1))
    if any(df == 0 for _, _, df in parts):
        # A size without repeated runs has the noise of the others: better than none, if noise is even over the sizes.
        total = sum(df for _, _, df in parts)
        if not total:
            return 0.0, None
        return sum(squares for squares, _, _ in parts) / total * sum(1 / number for _, number, _ in parts), float(total)
    means = [(squares / df / number, df) for squares, number, df in parts]
    variance = sum(part for part, _ in means)
    return variance, degrees_of_freedom(means) if variance else None


def degrees_of_freedom(parts: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of estimated variances, from each and its own; see the top of this file."""
    squares = sum(part**2 / (df + 1) for part, df in parts)
    return max(sum(part for part, _ in parts) ** 2 / squares - 1, float(min(df for _, df in parts)))
