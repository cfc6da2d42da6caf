r"""Equal printed results: copies of one run, or runs that the printed digits cannot distinguish.

Two runs of loss y ~ N(mu, sigma^2), printed in steps of h, print the same digits with probability

    p = E[max(0, 1 - |D| / h)],  D ~ N(0, 2 sigma^2),
      = erf(r) - (1 - exp(-r^2)) / (r sqrt(pi)),         r = h / (2 sigma),

which is about h / (2 sqrt(pi) sigma) for small h. Of n runs, the next one repeats one of i others with probability at most i p,
so that the number of repeats in a table is at most a sum of independent trials with i p, i = 1 to n - 1, for each variant
(the birthday problem). Repeats are called copies if that many come by chance with probability at most `LEVEL`: first within a
variant, then within all the others together, as where every method was run twice and four of five pairs are equal.

sigma is the standard deviation of the variant's own runs if they show three values at least, else the median of those of the
other variants; equal runs count, so that copies make themselves look a little more probable. If nothing shows any spread,
sigma is taken as a ten-thousandth of the loss. h is the last decimal place that any run of the variant shows, or the spacing of
32-bit or 16-bit floats where all its numbers are such floats.

Source: Feller 1968, "An Introduction to Probability Theory and Its Applications", volume 1, section II.3 (birthdays).
Differs from the source: days are not equally likely, and the bound i p takes every earlier run as a further day.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from addnorm.statistics.result import Result

LEVEL = 1e-3
"""Probability of calling repeats copies that came by chance."""
_LEAST_SPREAD = 1e-4
"""Standard deviation of a run, as a share of its loss, where no two runs show one."""
_COINCIDENCE = 1e-3
"""Share of decimal numbers that are floats of fewer bits by chance, below which the bits are taken as the resolution."""
_MOST_EXACT = 1000
"""Trials up to which their sum is exact; beyond, Chernoff's bound is taken."""
_MOST_VARIANTS = 60
"""Variants from which the noise between variants is taken."""


@dataclass(frozen=True)
class Repeats:
    """Equal results, as copies or as coincidences."""

    copies: frozenset[str]
    """Variants whose repeats are copies."""
    by_chance: Mapping[str, int]
    """Number of repeats of each variant that may have come by chance."""
    expected: float
    """Largest number of repeats that is to be expected by chance among those."""
    resolution: float
    """Coarsest step of the printed losses among those."""


def printed(run: Result) -> tuple[float | None, float | None, float | None]:
    """The numbers that equal runs share."""
    return run.loss, run.accuracy, run.perplexity


def repeats(finished: Sequence[Result]) -> Repeats:
    """Decide which equal results within a variant are copies. Runs that all have a content hash are told apart by it."""
    by_variant = _by_variant(finished)
    equal = {
        name: len(runs) - len(set(map(printed, runs)))
        for name, runs in by_variant.items()
        if any(run.content_hash is None for run in runs)
    }
    equal = {name: count for name, count in equal.items() if count}
    if not equal:
        return Repeats(frozenset(), {}, 0.0, 0.0)
    typical = _typical_sd(by_variant.values())
    trials = {
        name: np.minimum(1.0, np.arange(1, len(runs)) * _chance(runs, _sd_of(runs, typical)))
        for name, runs in by_variant.items()
        if any(run.content_hash is None for run in runs)
    }
    copies = {name for name, count in equal.items() if _at_least(count, trials[name]) <= LEVEL / len(equal)}
    rest = [trials[name] for name in trials if name not in copies]
    together = sum(count for name, count in equal.items() if name not in copies)
    if together and _at_least(together, np.concatenate(rest)) <= LEVEL:
        copies |= equal.keys()
    kept = {name: count for name, count in equal.items() if name not in copies}
    return Repeats(
        copies=frozenset(copies),
        by_chance=kept,
        expected=float(sum(trials[name].sum() for name in trials if name not in copies)),
        resolution=max((resolution(_losses(by_variant[name])) for name in kept), default=0.0),
    )


def agrees_by_chance(one: Sequence[Result], other: Sequence[Result], finished: Sequence[Result]) -> bool:
    """True if two variants may print the same numbers at every seed without being one computation.

    Args:
        one: runs of a variant.
        other: runs of another variant, at the same seeds, with the same numbers.
        finished: all runs of the table. Their differences at equal seeds tell the noise; a seed's own effect is in both runs.
    """
    by_variant = _by_variant(finished)
    names = [name for name in by_variant if name not in (one[0].variant, other[0].variant)]
    sd = _noise_between([by_variant[name] for name in names[:_MOST_VARIANTS]])
    if sd is None:
        sd = _sd_of(one, _typical_sd(by_variant.values()))
    chance = max(_chance(one, sd), _chance(other, sd)) ** len(one)
    return bool(chance * max(math.comb(len(by_variant), 2), 1) > LEVEL)


def resolution(losses: Iterable[float]) -> float:
    """The step in which numbers were printed.

    Example:
        >>> resolution([3.2804, 3.28])
        0.0001
        >>> resolution([2.515625, 2.53125])  # bfloat16
        0.015625
    """
    values = [abs(loss) for loss in losses]
    decimal = 10.0 ** -max(map(_decimals, values))
    largest = max(values)
    exact = float(np.spacing(largest))
    for bits in (8, 11, 24):
        step = 2.0 ** (math.frexp(largest)[1] - bits) if largest else 0.0
        if decimal < _COINCIDENCE * step and all((value / step).is_integer() for value in values):
            return step
    return max(decimal, exact)


def _decimals(value: float) -> int:
    mantissa, _, exponent = repr(value).partition("e")
    digits = mantissa.partition(".")[2].rstrip("0")
    return len(digits) - int(exponent or 0)


def _chance(runs: Sequence[Result], sd: float) -> float:
    """Probability that two runs print the same number."""
    ratio = resolution(_losses(runs)) / (2 * sd)
    if ratio < 1e-4:
        return ratio / math.sqrt(math.pi)  # where the difference below would be rounding
    return float(erf(ratio) - (1 - math.exp(-(ratio**2))) / (ratio * math.sqrt(math.pi)))


def _at_least(count: int, trials: np.ndarray) -> float:
    """Probability of that many successes or more in independent trials."""
    if len(trials) > _MOST_EXACT:
        mean = float(trials.sum())
        return 1.0 if count <= mean else math.exp(count - mean - count * math.log(count / max(mean, 1e-300)))
    below = np.zeros(count)
    below[0] = 1.0
    tail = 0.0
    for probability in trials:
        tail += below[-1] * probability
        below[1:] = below[1:] * (1 - probability) + below[:-1] * probability
        below[0] *= 1 - probability
    return tail


def _sd_of(runs: Sequence[Result], typical: float) -> float:
    values = _losses(runs)
    return float(np.std(values, ddof=1)) if len(set(values)) >= 3 else typical


def _typical_sd(variants: Iterable[Sequence[Result]]) -> float:
    losses = [_losses(runs) for runs in variants]
    spread = [float(np.std(values, ddof=1)) for values in losses if len(set(values)) > 1]
    if spread:
        return float(np.median(spread))
    largest = max(abs(value) for values in losses for value in values)
    return _LEAST_SPREAD * largest if largest else 1.0


def _noise_between(variants: Sequence[Sequence[Result]]) -> float | None:
    """Median standard deviation of a run, from differences of two variants at equal seeds; None without such."""
    by_seed = [{run.seed: run.finished_loss for run in runs} for runs in variants]
    spreads = []
    for place, one in enumerate(by_seed):
        for other in by_seed[:place]:
            differences = [one[seed] - other[seed] for seed in one.keys() & other.keys()]
            if len(set(differences)) > 1:
                spreads.append(float(np.std(differences, ddof=1)) / math.sqrt(2))
    return float(np.median(spreads)) if spreads else None


def _losses(runs: Iterable[Result]) -> list[float]:
    return [run.finished_loss for run in runs]


def _by_variant(finished: Iterable[Result]) -> dict[str, list[Result]]:
    by_variant: dict[str, list[Result]] = {}
    for run in finished:
        by_variant.setdefault(run.variant, []).append(run)
    return by_variant
