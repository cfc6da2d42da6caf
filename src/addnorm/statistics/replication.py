r"""Replication: a second batch of seeds tests again what a first one found; it was planned before the first was seen.

**Found** are the comparisons that the first batch decides: better, worse, equivalent. Its family and its error rate are those
of any ranking. The k found comparisons alone are the family of the second batch. With d the mean difference over its seeds, the
p value of a difference is that of its found sign alone, of equivalence that of the two one-sided tests,

    p = P(T > |d| / se) if d has the found sign, else above 1/2;          found again if Holm's adjusted p of the k <= alpha.

The noise is estimated within the second batch, by the same tests (`pairs`). Otherwise the comparison is **not found again**:
the second batch does not show it, which is no verdict of the opposite.

Why: a verdict can be wrong because of one sample, above all of a reference that takes part in many. Its other seeds tell. A
false verdict is found again only if both batches err, alike and independently: in less than 0.3 % of studies with even noise,
and in less than 1 % where single batches err in 10 %.

Why the found comparisons alone: the second batch asks less, so that it can be as small as the first and still confirm most of
what is true. Only the variants of found comparisons are trained.

Source: the family of each batch: Holm 1979. That two batches have to agree is this project's rule.
Differs from the source: nothing. `benchmarks/instrument.py two-batches` simulates the error rates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from addnorm.errors import InputError
from addnorm.statistics.multiple_testing import holm
from addnorm.statistics.pairs.comparison import Again, VariantComparison
from addnorm.statistics.result import FEWEST_SEEDS, Result
from addnorm.statistics.table import tabulate
from addnorm.statistics.tuning import TuningOutcome
from addnorm.statistics.verdicts import ComparisonFamily

FOUND = ("better", "worse", "equivalent")
Pair = tuple[str, str]
Comparisons = Mapping[str, Mapping[str, VariantComparison]]


def require_unseen(second: Sequence[int], first: Sequence[int], *, place: str = "replicate") -> None:
    """Refuse a second batch that shares a seed with the first.

    Args:
        second: seeds of the second batch.
        first: seeds that are seen before: those of the comparison and of tuning.
        place: of the second batch, for the message.

    Raises:
        InputError: a seed is in both, or one is there twice, or they are too few for a test.
    """
    common = sorted(set(second) & set(first))
    if common:
        raise InputError(
            f"{place}: expected seeds that nothing has been seen of, got {', '.join(map(str, common))}, which the study is "
            "compared or tuned on. A verdict is found again on other seeds alone: name others."
        )
    if len(set(second)) != len(second) or len(second) < FEWEST_SEEDS:
        raise InputError(
            f"{place}: expected at least {FEWEST_SEEDS} distinct seeds, as every verdict needs, got {list(second)}."
        )


def found_pairs(comparisons: Comparisons) -> tuple[Pair, ...]:
    """Every found comparison once, as variant and reference."""
    pairs: dict[frozenset[str], Pair] = {}
    for name, versus in comparisons.items():
        for other, comparison in versus.items():
            if comparison.verdict in FOUND:
                pairs.setdefault(frozenset((name, other)), (name, other))
    return tuple(pairs.values())


def found_again(
    comparisons: Comparisons, later: Sequence[Result], seeds: Sequence[int], *, margin: float, confidence: float
) -> dict[str, dict[str, VariantComparison]]:
    """The comparisons of the first batch, each found one with what the second batch says of it.

    Args:
        comparisons: of every variant with every reference, on the first batch.
        later: runs of the second batch.
        seeds: those of the second batch.
        margin: largest difference that counts as none.
        confidence: of all claims of a batch together.
    """
    # Of other losses, such as those of longer texts, more may be found than was planned for the second batch.
    trained = {run.variant for run in later}
    pairs = tuple(pair for pair in found_pairs(comparisons) if not later or trained.issuperset(pair))
    again = _second(comparisons, pairs, later, seeds, margin, confidence) if pairs else {}
    result = {}
    for name, versus in comparisons.items():
        result[name] = {
            other: replace(comparison, again=_of(again, name, other)) for other, comparison in versus.items()
        }
    return result


def _of(again: Mapping[Pair, Again], name: str, other: str) -> Again | None:
    if (name, other) in again:
        return again[name, other]
    return again[other, name].mirrored() if (other, name) in again else None


def _second(
    comparisons: Comparisons,
    pairs: Sequence[Pair],
    later: Sequence[Result],
    seeds: Sequence[int],
    margin: float,
    confidence: float,
) -> dict[Pair, Again]:
    waiting = Again(state="found", seeds=tuple(seeds), difference=None, p=None, by_seed={})
    again = dict.fromkeys(pairs, waiting)
    ended = {(run.variant, run.seed) for run in later if run.ended}
    ready = [pair for pair in pairs if all((name, seed) in ended for name in pair for seed in seeds)]
    # All of the second batch or nothing: Holm's procedure over those that happen to be ready would be a look on the way.
    if not ready or not all(run.ended for run in later):
        return again
    references = tuple(dict.fromkeys(other for _, other in ready))
    family = ComparisonFamily.of(tabulate(later, references), references, margin, confidence, None, chosen=ready)
    seen = {pair: family.compare(*pair) for pair in ready}
    p = [_p_again(comparisons[a][b], seen[a, b], family, (a, b)) if (a, b) in seen else 1.0 for a, b in pairs]
    adjusted = holm(np.array(p), len(pairs))
    for pair, probability in zip(pairs, adjusted, strict=True):
        if pair in seen:
            state: Literal["found again", "not found again"] = (
                "found again" if probability <= 1 - confidence else "not found again"
            )
            again[pair] = replace(
                waiting,
                state=state,
                difference=seen[pair].difference,
                p=float(probability),
                by_seed=seen[pair].by_seed,
            )
    return again


def _p_again(first: VariantComparison, seen: VariantComparison, family: ComparisonFamily, pair: Pair) -> float:
    """P value of the found verdict on the second batch; 1 where it has no test, or where a variant failed."""
    if seen.verdict in (None, "failed") or seen.difference is None or seen.standard_error is None:
        # Two names of one computation are equivalent without a test.
        return 0.0 if seen.verdict == first.verdict == "equivalent" else 1.0
    place = family.place(*pair)
    if family.decisions is None or place is None:
        return 1.0
    tests = family.decisions.tests
    wanted = np.full(tests.difference.shape, np.nan)
    if first.verdict == "equivalent":
        wanted[place] = family.margin - abs(seen.difference)
    else:
        wanted[place] = seen.difference if first.verdict == "worse" else -seen.difference
    return float(min(tests.tail(wanted)[place], 1.0))


def with_tuning(comparisons: Comparisons, tuning: TuningOutcome) -> dict[str, dict[str, VariantComparison]]:
    """The comparisons with the differences of the chosen points at the tuning seeds."""
    losses: dict[str, dict[int, float]] = {}
    for of in tuning.variants:
        runs = [run for point in of.points if point.name == of.chosen for run in point.runs]
        losses[of.variant] = {run.seed: run.loss for run in runs if run.state == "finished" and run.loss is not None}
    return {
        name: {
            other: replace(comparison, tuning=_differences(losses.get(name, {}), losses.get(other, {})))
            for other, comparison in versus.items()
        }
        for name, versus in comparisons.items()
    }


def _differences(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    return {seed: loss - other[seed] for seed, loss in one.items() if seed in other}
