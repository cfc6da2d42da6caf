r"""Two models on the same items: the difference of their scores, with an interval that knows items, documents and seeds.

With y_{s,i} the score of a model trained at seed s on item i, and d_i the difference of two models on item i, averaged over
seeds, the difference is the mean of d_i over n items. Items of one document (a text with several questions) are alike, so
sums over documents c = 1 … C vary:

    V_items = C / (C - 1) sum_c ( sum_{i in c} (d_i - d) )^2 / n^2.

With several seeds the runs vary too, and both are crossed: every run answers every item. With g_s the mean over items of a run
(of the difference, if both models share seeds; of each model otherwise) and e_{s,i} what is left after both means,

    V_seeds = sum_s (g_s - g)^2 / (S (S - 1)),
    V_both  = S / (S - 1) C / (C - 1) sum_s sum_c ( sum_{i in c} e_{s,i} )^2 / (S n)^2,
    V = V_items + max(V_seeds - V_both, 0),

since V_items and V_seeds both contain the noise of single answers, which V_both estimates. The interval is that of Student's t
on Satterthwaite's degrees of freedom, with C - 1 for V_items and S - 1 for V_seeds.

One checkpoint each, right or wrong answers, and no documents: with b items that only the first model has right, and c that only
the second has, the interval is the set of differences that Tango's score test does not reject. At no difference its statistic
is (b - c) / sqrt(b + c), which is McNemar's test.

Without seeds the answer is about two checkpoints and other items like these; with seeds it is about two ways to train.

Source: McNemar 1947, Psychometrika 12, 153-157; Tango 1998, Stat. Med. 17, 891-908; Cameron et al. 2011,
doi:10.1198/jbes.2010.07136 (several directions of clustering); Miller 2024, arXiv:2411.00640 (paired and clustered errors of
evaluations).
Differs from the source: degrees of freedom of the sum, and its floor at V_items.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from addnorm.errors import InputError
from addnorm.fields import JsonFields

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ItemComparison(JsonFields):
    """Two models on the same items; the difference is that of the first minus the second."""

    difference: float
    interval: Interval
    standard_error: float
    p: float
    """Two-sided, of no difference; of this comparison alone."""
    df: float
    """Infinite for the test of McNemar."""
    method: Literal["mcnemar", "items", "items and seeds"]
    items: int
    documents: int
    seeds: tuple[int, int]
    """Runs of the first and the second model."""
    shared_seeds: bool
    only_first: int | None
    """Items that only the first model has right; None if scores are not right or wrong, or with seeds."""
    only_second: int | None
    unpaired_z: Interval
    """Interval by sqrt(se^2 + se^2) of the two models' own standard errors, as lm-eval computes it."""

    def to_json(self) -> dict[str, object]:
        """The fields as plain JSON values; an infinite number of degrees of freedom is None."""
        return {**super().to_json(), "df": None if math.isinf(self.df) else self.df}


def compare_items(
    first: Float[np.ndarray, "seed item"],
    second: Float[np.ndarray, "other_seed item"],
    documents: Int[np.ndarray, " item"] | None = None,
    *,
    shared_seeds: bool = False,
    confidence: float = 0.95,
) -> ItemComparison:
    """Compare two models on the same items.

    Args:
        first: scores of each run of the first model on each item.
        second: of the second model.
        documents: number of the document of each item; each item is one of its own unless given.
        shared_seeds: True if row s of both is one seed.
        confidence: of the interval.

    Raises:
        InputError: fewer than two documents, different items, or a score that is not finite.

    Example:
        >>> first, second = np.ones((1, 40)), np.ones((1, 40))
        >>> first[0, :5], second[0, :15] = 0, 0
        >>> compared = compare_items(first, second)
        >>> compared.method, compared.only_first, compared.only_second, round(compared.p, 4)
        ('mcnemar', 10, 0, 0.0016)
    """
    number = first.shape[1]
    documents = np.arange(number) if documents is None else np.unique(documents, return_inverse=True)[1]
    count = int(documents.max()) + 1 if number else 0
    if second.shape[1] != number or documents.shape != (number,):
        raise InputError(f"items: expected the same items of both models, got {number} and {second.shape[1]}.")
    if count < 2:
        raise InputError(f"items: expected at least two items of different documents, got {count}. Score more items.")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError(
            "items: expected finite scores, got one that is not. Leave out the items that were not scored."
        )
    if shared_seeds and len(first) != len(second):
        raise InputError(f"seeds: expected as many runs of both models, got {len(first)} and {len(second)}.")
    by_item = first.mean(axis=0) - second.mean(axis=0)
    difference = float(by_item.mean())
    tail = (1 + confidence) / 2
    binary = len(first) == len(second) == 1 and set(np.unique([first, second])) <= {0.0, 1.0}
    only = (
        tuple(int(((first[0] == answer) & (second[0] == 1 - answer)).sum()) for answer in (1, 0))
        if binary
        else (None, None)
    )
    of_items = _of_clusters(by_item - difference, documents)
    seeds = _of_seeds(first, second, documents, shared=shared_seeds)
    variance = of_items + sum(extra for extra, _, _ in seeds)
    # One part may be zero: two models that agree on every item, or runs that are copies.
    parts = [(of_items, count - 1), *((mean, df) for _, mean, df in seeds)]
    satterthwaite = sum(part**2 / df for part, df in parts)
    df = variance**2 / satterthwaite if satterthwaite > 0 else float(count - 1)
    error = math.sqrt(variance)
    if binary and count == number:
        right, wrong = only[0] or 0, only[1] or 0
        interval = _score_interval(right, wrong, number, float(ndtri(tail)))
        statistic = (right - wrong) / math.sqrt(right + wrong) if right + wrong else 0.0
        p, df = 2 * float(ndtr(-abs(statistic))), math.inf
    else:
        half = float(stdtrit(df, tail)) * error
        interval = (difference - half, difference + half)
        p = 2 * float(stdtr(df, -abs(difference) / error)) if error > 0 else float(difference == 0)
    own = [each.mean(axis=0).var(ddof=1) / number for each in (first, second)]
    unpaired = float(ndtri(tail)) * math.sqrt(sum(own))
    return ItemComparison(
        difference=difference,
        interval=interval,
        standard_error=error,
        p=p,
        df=df,
        method="items and seeds" if seeds else "mcnemar" if math.isinf(df) else "items",
        items=number,
        documents=count,
        seeds=(len(first), len(second)),
        shared_seeds=shared_seeds,
        only_first=only[0],
        only_second=only[1],
        unpaired_z=(difference - unpaired, difference + unpaired),
    )


def _of_clusters(away: Float[np.ndarray, " item"], documents: Int[np.ndarray, " item"]) -> float:
    """Variance of the mean of deviations whose sums over documents are independent."""
    sums = np.bincount(documents, weights=away)
    return float(sums.size / (sums.size - 1) * (sums**2).sum() / away.size**2)


def _of_seeds(
    first: np.ndarray, second: np.ndarray, documents: np.ndarray, *, shared: bool
) -> list[tuple[float, float, int]]:
    """For each independent set of runs: what it adds to the variance, the variance of its mean, and degrees of freedom."""
    made = []
    for scores in [first - second] if shared else [first, second]:
        seeds = len(scores)
        if seeds < 2:
            continue
        by_seed = scores.mean(axis=1)
        of_mean = float(by_seed.var(ddof=1) / seeds)
        left = scores - by_seed[:, None] - scores.mean(axis=0) + scores.mean()
        both = seeds / (seeds - 1) * sum(_of_clusters(row, documents) for row in left) / seeds**2
        # The subtraction can be negative by chance, and then the runs add nothing that the items do not hold already.
        made.append((max(of_mean - both, 0.0), of_mean, seeds - 1))
    return made


def _score_interval(right: int, wrong: int, number: int, z: float) -> Interval:
    """Differences that Tango's score test does not reject."""

    def statistic(difference: float) -> float:
        linear = -right - wrong + (2 * number - right + wrong) * difference
        constant = -wrong * difference * (1 - difference)
        root = math.sqrt(max(linear**2 - 8 * number * constant, 0.0))
        only_second = (root - linear) / (4 * number)
        variance = number * (2 * only_second + difference * (1 - difference))
        above = right - wrong - number * difference
        return above / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, above) if above else 0.0

    centre = (right - wrong) / number
    return (
        _root(lambda at: statistic(at) - z, -1.0, centre),
        _root(lambda at: statistic(at) + z, centre, 1.0),
    )


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Find the place where a falling function crosses zero."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def verdict_of(
    comparison: ItemComparison, *, higher: bool, margin: float | None
) -> Literal["better", "worse", "equivalent", "undecided"]:
    """The verdict that an interval allows.

    Args:
        comparison: whose interval holds together with those of the other comparisons.
        higher: True if a higher score is better.
        margin: largest difference that counts as none; None for no claim of equivalence.
    """
    low, high = comparison.interval
    if margin is not None and -margin < low and high < margin:
        return "equivalent"  # as of runs: a difference that counts as none is no improvement, however well it is known
    if low > 0 or high < 0:
        return "better" if (low > 0) == higher else "worse"
    return "undecided"
