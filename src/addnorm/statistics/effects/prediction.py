r"""The largest size of a ladder, predicted from the smaller ones before it is trained, and the score of that prediction.

Losses at the smaller sizes follow L_v(C) = limit + A_v C^-exponent (`joint_law`), and so does the prediction. A difference
between two models with equal compute then shrinks in proportion to what is left above the limit.

*Interval.* A predicted loss or difference is a smooth function of the mean losses, with derivatives g (`JointLaw.influence`).
At size j, with n_j seeds that all models share, its variance is that of sum_v g_jv L_vs over the seeds, over n_j: each size
has its own noise, and what a seed does to all models cancels in a difference. The result to come adds its own noise: that of
the same loss or difference at the largest size which is known, over the n seeds that are planned.

Differences need not follow the law. What the K known mean differences are away from it, r_j, beyond their noise is a variance
of its own, by moments: max(0, sum r_j^2 / (K - 1) - mean of their variances), on K - 1 degrees of freedom, for the size to
come and, through the derivatives, for the known ones. Without it, differences that stay what they are instead of shrinking
were held in 67 % of simulated ladders, and in 11 % where the noise is small; with it in 90 and 94 %, and in 96 % where the law
is true.

Degrees of freedom are those of `speedup`. All intervals of the differences hold together (Bonferroni), and so do those of the
losses.

*Naive prediction.* Every difference stays what it is at the largest known size.

Source: the delta method: any text.
Differs from the source: nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from addnorm.errors import InputError
from addnorm.fields import JsonFields
from addnorm.statistics.effects.joint_law import CurveLaw, JointLaw
from addnorm.statistics.effects.speedup import degrees_of_freedom
from addnorm.statistics.pairs.comparison import VariantComparison, Verdict
from addnorm.statistics.trend import DecisionAccuracy, Losses, decision_accuracy


@dataclass(frozen=True, kw_only=True)
class LadderSize:
    """The runs of one size of the models."""

    name: str
    losses: Losses
    """Of the finished runs, by variant and seed."""
    compute: Mapping[str, float]
    """Of a run, by variant, in FLOPs."""


@dataclass(frozen=True, kw_only=True)
class Predicted(JsonFields):
    """Mean loss of a variant at the largest size, or its difference from a reference, in nats per token."""

    variant: str
    reference: str | None
    """None for the loss itself."""
    value: float
    interval: tuple[float, float] | None
    """None for a loss with two known sizes, from which the limit of the law cannot be told."""
    verdict: Literal["better", "worse", "equivalent", "undecided"] | None = None
    """Of a difference: where its interval lies."""
    naive: float | None = None
    """Of a difference: what it is at the largest known size."""
    observed: float | None = None
    observed_verdict: Verdict | None = None

    @property
    def is_held(self) -> bool:
        """True if the interval holds what was observed."""
        return self.interval is not None and self.interval[0] <= float(self.observed or 0) <= self.interval[1]


@dataclass(frozen=True, kw_only=True)
class PredictionScore(JsonFields):
    """Agreement of a prediction with what was found."""

    losses_held: int
    """Losses that lie in their interval."""
    of_losses: int
    differences_held: int
    of_differences: int
    error: float
    """Mean absolute error of the differences, in nats per token."""
    naive_error: float
    verdicts_right: int
    """Differences that were predicted to be decided, and were found so."""
    verdicts_predicted: int
    decisions: tuple[DecisionAccuracy, ...]
    """Pairs of variants in the predicted order: by the prediction, and by the largest known size. Empty with two variants."""


@dataclass(frozen=True, kw_only=True)
class Prediction(JsonFields):
    """Expected results of the largest size of a ladder."""

    sizes: tuple[str, ...]
    """The known sizes, from the smallest."""
    largest: str
    references: tuple[str, ...]
    margin: float
    confidence: float
    seeds: int
    """Planned for the largest size."""
    law: CurveLaw
    """Of the first reference."""
    losses: tuple[Predicted, ...]
    differences: tuple[Predicted, ...]
    left_out: tuple[str, ...]
    """Variants without a loss at every size."""
    score: PredictionScore | None = None


def predict(
    sizes: Sequence[LadderSize],
    largest: LadderSize,
    *,
    seeds: int,
    references: Sequence[str],
    margin: float = 0.005,
    confidence: float = 0.95,
) -> Prediction:
    """Predict losses, differences and verdicts at a size of which nothing is known.

    Args:
        sizes: at least two, in any order; all variants that count share two seeds at each.
        largest: the size that is predicted; its losses are not read.
        seeds: number of its seeds.
        references: variants that all others are compared with.
        margin: largest difference that counts as equivalent.
        confidence: of all intervals of the differences together, and of those of the losses.

    Raises:
        InputError: fewer than two sizes, a size that is not below the largest, too few common seeds or variants, or losses that
            do not fall with compute.

    Example:
        >>> def size(c):
        ...     runs = {(v, s): 1.5 + a * c**-0.2 + 0.01 * s for v, a in (("base", 9), ("deep", 8)) for s in range(4)}
        ...     return LadderSize(name=f"{c:g}", losses=runs, compute={"base": c, "deep": c})
        >>> found = predict([size(1e3), size(1e4), size(1e5)], size(1e6), seeds=4, references=["base"])
        >>> round(found.differences[0].value, 3), found.differences[0].verdict
        (-0.063, 'better')
    """
    ladder = sorted(sizes, key=lambda size: max(size.compute.values()))
    names = [name for name in largest.compute if all(any(v == name for v, _ in size.losses) for size in ladder)]
    _check(ladder, largest, names, references)
    tables = [_table(size, names) for size in ladder]
    compute = np.array([[size.compute[name] for name in names] for size in (*ladder, largest)])
    fit = JointLaw(compute=compute[:-1], runs=np.array([[table.shape[1]] * len(names) for table in tables]))
    means = np.array([table.mean(axis=1) for table in tables])
    solved = fit.solve(means)
    logs = np.log(compute) - solved.centre
    falling = solved.coefficients * np.exp(-solved.exponent * logs)
    *fitted, predicted = solved.limit + falling

    def interval(weights: np.ndarray, family: int) -> tuple[float, float]:
        """Of the weighted sum of the losses, simultaneous with all of its family."""
        powers = weights * np.exp(-solved.exponent * logs[-1])
        derivatives = fit.influence(
            solved, np.array([*powers, -(powers * solved.coefficients) @ logs[-1], weights.sum()])
        )
        samples = [(g @ table, table.shape[1]) for g, table in zip(derivatives, tables, strict=True)]
        samples.append((weights @ tables[-1], seeds))
        parts = [(float(each.var(ddof=1)) / number, each.size - 1) for each, number in samples]
        if not weights.sum():  # a difference
            away = (means - np.array(fitted)) @ weights
            known = np.mean([(weights @ table).var(ddof=1) / table.shape[1] for table in tables])
            own = max(0.0, float(away @ away / (len(tables) - 1) - known))
            leverage = 1 + float(np.sum((derivatives @ weights) ** 2)) / float(weights @ weights) ** 2
            parts.append((own * leverage, len(tables) - 1))
        variance, half = sum(part for part, _ in parts), 0.0
        if variance > 0:
            level = 1 - (1 - confidence) / (2 * family)
            half = float(stdtrit(degrees_of_freedom(parts), level)) * math.sqrt(variance)
        centre = float(weights @ predicted)
        return centre - half, centre + half

    unit = np.eye(len(names))
    pairs = [(own, names.index(ref)) for ref in references for own, name in enumerate(names) if name != ref]
    differences = []
    for own, ref in pairs:
        ends = interval(unit[own] - unit[ref], len(pairs))
        differences.append(
            Predicted(
                variant=names[own],
                reference=names[ref],
                value=float(predicted[own] - predicted[ref]),
                interval=ends,
                verdict=_verdict(*ends, margin),
                naive=float(means[-1, own] - means[-1, ref]),
            )
        )
    losses = [
        Predicted(
            variant=name,
            reference=None,
            value=float(predicted[place]),
            interval=interval(unit[place], len(names)) if len(ladder) > 2 else None,
        )
        for place, name in enumerate(names)
    ]
    return Prediction(
        sizes=tuple(size.name for size in ladder),
        largest=largest.name,
        references=tuple(references),
        margin=margin,
        confidence=confidence,
        seeds=seeds,
        law=solved.law(names.index(references[0])),
        losses=tuple(losses),
        differences=tuple(differences),
        left_out=tuple(name for name in largest.compute if name not in names),
    )


def scored(
    prediction: Prediction,
    observed: Losses,
    comparisons: Mapping[tuple[str, str], VariantComparison],
    last: LadderSize,
) -> Prediction:
    """The prediction with what was observed, and its score.

    Args:
        prediction: made before.
        observed: losses of the finished runs of the largest size.
        comparisons: of its ranking, by variant and reference.
        last: the largest of the known sizes.

    Raises:
        InputError: a predicted variant has no finished run, or no seed in common with its reference.
    """
    losses, differences = [], []
    for each in prediction.losses:
        own = [loss for (name, _), loss in observed.items() if name == each.variant]
        if not own:
            raise InputError(
                f"{prediction.largest}: expected a finished run of {each.variant!r}, which was predicted, got none. Score the "
                "prediction when all runs have ended."
            )
        losses.append(replace(each, observed=float(np.mean(own))))
    for each in prediction.differences:
        comparison = comparisons[each.variant, str(each.reference)]
        if comparison.difference is None:
            raise InputError(
                f"{prediction.largest}: expected a seed that {each.variant!r} and {each.reference!r} share, got none."
            )
        differences.append(replace(each, observed=comparison.difference, observed_verdict=comparison.verdict))
    names = [each.variant for each in losses]
    by_law = {(each.variant, seed): each.value for each in losses for _, seed in observed}
    decided = [each for each in differences if each.verdict != "undecided"]
    off = np.array([[e.value, e.naive] for e in differences]) - np.array([[e.observed] for e in differences])
    error, naive_error = np.abs(off.astype(float)).mean(axis=0).tolist()
    score = PredictionScore(
        losses_held=sum(each.is_held for each in losses),
        of_losses=sum(each.interval is not None for each in losses),
        differences_held=sum(each.is_held for each in differences),
        of_differences=len(differences),
        error=error,
        naive_error=naive_error,
        verdicts_right=sum(each.verdict == each.observed_verdict for each in decided),
        verdicts_predicted=len(decided),
        decisions=tuple(
            decision_accuracy(name, prediction.largest, expected, observed, names)
            for name, expected in (("prediction", by_law), (last.name, last.losses))
            if len(names) > 2
        ),
    )
    return replace(prediction, losses=tuple(losses), differences=tuple(differences), score=score)


def _check(ladder: Sequence[LadderSize], largest: LadderSize, names: Sequence[str], references: Sequence[str]) -> None:
    if len(ladder) < 2:
        raise InputError(
            f"a prediction needs at least two smaller sizes, got {len(ladder)}: one size shows no change with the compute. "
            "Train another size."
        )
    for name in references:
        if name not in names:
            raise InputError(
                f"reference {name!r}: expected finished runs of it at every size, got none at one of them."
            )
    if len(names) < 2:
        raise InputError("a prediction needs a variant beside the reference at every size, got none.")
    spent = [size.compute[names[0]] for size in (*ladder, largest)]
    if spent != sorted(set(spent)):
        raise InputError(
            f"{largest.name}: expected a size above all others, each of another compute, got "
            f"{', '.join(f'{each:.4g}' for each in spent)} FLOPs a run. Predict the largest size from the smaller ones."
        )


def _table(size: LadderSize, names: Sequence[str]) -> Float[np.ndarray, "variant seed"]:
    """Losses at the seeds that all variants share."""
    seeds = set.intersection(*({seed for name, seed in size.losses if name == each} for each in names))
    if len(seeds) < 2:
        raise InputError(
            f"{size.name}: expected two seeds or more that all variants have finished, got {len(seeds)}: without them no "
            "interval is known. Train the missing runs, or leave a variant out with --exclude."
        )
    return np.array([[size.losses[name, seed] for seed in sorted(seeds)] for name in names])


def _verdict(low: float, high: float, margin: float) -> Literal["better", "worse", "equivalent", "undecided"]:
    if -margin < low and high < margin:
        return "equivalent"
    return "better" if high < 0 else "worse" if low > 0 else "undecided"
