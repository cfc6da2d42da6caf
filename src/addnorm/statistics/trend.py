"""Differences against size: does what separates two variants grow or shrink as the models grow?

At every seed, a variant's losses at K sizes have a least-squares slope over log2(parameters), in nats per doubling. A slope is
a fixed sum of losses, so slopes are ranked as losses are: paired by seed, with noise of their own for noisy variants, and all
verdicts and intervals together. The slope is taken per seed first, so noise that a seed's runs share across sizes is counted.

A straight line is tested, not claimed: a bend is not seen.

**Decisions.** Would a choice between two variants at one size have been the same at the next? Of the V (V - 1) / 2 pairs of
variants, the share whose mean difference keeps its sign. Beside it, the middle 95 % of that share if the order at the next size
were any order with equal probability (Kendall 1938, the distribution of inversions), and an interval over variants such as
these: the jackknife of a U-statistic that leaves out one variant at a time (Arvesen 1969, Ann. Math. Stat. 40, p. 2076), with t
of V - 1 degrees of freedom. DataDecide (Magnusson et al. 2025, arXiv:2504.11393) calls this share the decision accuracy.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from addnorm.errors import InputError, UnknownName
from addnorm.fields import JsonFields
from addnorm.statistics.measure import LOSS, Metric
from addnorm.statistics.over_seeds import half_interval
from addnorm.statistics.pairs.comparison import VariantComparison, Verdict
from addnorm.statistics.procedure import rank
from addnorm.statistics.repeats import repeats
from addnorm.statistics.result import Result
from addnorm.statistics.table import tabulate

Direction = Literal["falls", "rises", "level", "undecided"]
_DIRECTIONS: dict[Verdict | None, Direction | None] = {
    "better": "falls",
    "worse": "rises",
    "equivalent": "level",
    "undecided": "undecided",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """The runs of one size of the models."""

    name: str
    parameters: float
    """Parameters of a model of this size, as of its first reference."""
    results: Sequence[Result]
    measure: Metric = LOSS


@dataclass(frozen=True, kw_only=True)
class VariantTrend:
    """One variant's differences from the references at every size, and how they change."""

    variant: str
    differences: Mapping[str, tuple[Mapping[int, float], ...]]
    """By reference: at each size, the difference in loss by seed, for the seeds that both have there."""
    versus: Mapping[str, VariantComparison]
    """By reference: the change of the difference per doubling of the parameters, as a comparison of slopes."""

    def means(self, reference: str) -> tuple[float | None, ...]:
        """Mean difference at each size; None where no seed is shared."""
        return tuple(sum(at.values()) / len(at) if at else None for at in self.differences[reference])

    def direction(self, reference: str) -> Direction | None:
        """Change of the difference as the models grow; None without a verdict.

        `falls`: it becomes more negative, so that a variant which is better leads by more.
        """
        return _DIRECTIONS.get(self.versus[reference].verdict)

    def to_json(self) -> dict[str, Any]:
        """The row as plain JSON values."""
        return {
            "variant": self.variant,
            "versus": {
                reference: {
                    "means": list(self.means(reference)),
                    "differences": [
                        [{"seed": seed, "difference": value} for seed, value in at.items()]
                        for at in self.differences[reference]
                    ],
                    "direction": self.direction(reference),
                    "change": comparison.to_json(),
                }
                for reference, comparison in self.versus.items()
            },
        }


@dataclass(frozen=True, kw_only=True)
class DecisionAccuracy(JsonFields):
    """Share of the pairs of variants whose order at one size is that at the next."""

    smaller: str
    larger: str
    """Names of the sizes."""
    pairs: int
    kept: int
    """Pairs whose mean difference, over the seeds that both have at that size, has one sign at both."""
    share: float
    interval: tuple[float, float] | None
    """95 % interval over variants such as these; None with fewer than five variants."""
    chance: tuple[float, float]
    """Middle 95 % of the share if the order at the larger size were a random one."""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """Differences from the references against the size of the models."""

    sizes: tuple[Size, ...]
    """From the smallest to the largest."""
    references: tuple[str, ...]
    margin: float
    """Largest change per doubling that counts as none."""
    confidence: float
    variants: tuple[VariantTrend, ...]
    """In the order of their mean loss at the largest size."""
    warnings: tuple[str, ...]
    decisions: tuple[DecisionAccuracy, ...] = ()
    """From every size to the next; empty with fewer than three variants."""

    def __getitem__(self, variant: str) -> VariantTrend:
        """The row of that variant.

        Raises:
            KeyError: no such variant.
        """
        return {row.variant: row for row in self.variants}[variant]

    def to_json(self) -> dict[str, Any]:
        """The trend as plain JSON values; every number is finite."""
        return {
            "metric": self.sizes[0].measure.name,
            "unit": self.sizes[0].measure.unit,
            "sizes": [{"name": size.name, "parameters": size.parameters} for size in self.sizes],
            "references": list(self.references),
            "margin": self.margin,
            "confidence": self.confidence,
            "variants": [row.to_json() for row in self.variants],
            "warnings": list(self.warnings),
            **({"decisions": [each.to_json() for each in self.decisions]} if self.decisions else {}),
        }


def trend(
    sizes: Sequence[Size],
    *,
    references: Sequence[str],
    margin: float = 0.005,
    confidence: float = 0.95,
    left_out: Collection[str] = (),
) -> Trend:
    """Compare the slopes of losses over log2(parameters), each variant with each reference.

    A variant's change counts the seeds that it has at every size; its difference at one size, all that it has there.

    Args:
        sizes: at least two, in any order.
        references: variants that all others are compared with.
        margin: largest change per doubling of the parameters that counts as none.
        confidence: of all verdicts together, and of all intervals together.
        left_out: variants that take no part.

    Raises:
        InputError: fewer than two sizes, two of the same number of parameters, sizes of other data or units, no reference,
            or what `rank` refuses.
        UnknownName: a reference or a variant to be left out that one of the sizes does not have.

    Example:
        >>> small = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> large = {"base": (2.20, 2.21, 2.20), "rezero": (2.01, 2.03, 2.02)}
        >>> sizes = [
        ...     Size(
        ...         name=name,
        ...         parameters=parameters,
        ...         results=[Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)],
        ...     )
        ...     for name, parameters, losses in (("small", 1e6, small), ("large", 4e6, large))
        ... ]
        >>> result = trend(sizes, references=["base"])
        >>> result["rezero"].direction("base")
        'falls'
    """
    kept = sorted((_without(size, left_out) for size in sizes), key=lambda size: size.parameters)
    _check(kept, references)
    losses = [_losses(size) for size in kept]
    slopes = _slopes(kept)
    measured = {result.variant for result in slopes if result.state == "finished"}
    for name in references:
        if name not in measured:
            raise InputError(f"reference {name!r}: expected a seed that it finished at every size, got none.")
    # A slope takes the place of a loss: "better" means a lower slope, so a variant whose lead grows. Noise, family and
    # intervals are those of `rank`, and no second procedure has to be simulated.
    slope = Metric(name="slope", unit=f"{kept[0].measure.unit or ''} per doubling".strip())
    ranking = rank(slopes, references=references, margin=margin, confidence=confidence, measure=slope)
    names = dict.fromkeys(result.variant for size in kept for result in size.results)
    levels = {name: _level(losses[-1], name) for name in names}
    rows = [
        VariantTrend(
            variant=name,
            differences={
                reference: tuple(_differences(at, name, reference) for at in losses)
                for reference in references
                if reference != name
            },
            versus=ranking[name].versus,
        )
        for name in sorted(measured, key=lambda name: (levels[name], name))
    ]
    return Trend(
        sizes=tuple(kept),
        references=tuple(references),
        margin=margin,
        confidence=confidence,
        variants=tuple(rows),
        warnings=(
            *_warnings(kept, losses, [name for name in names if name not in measured], slopes),
            *(note for note in ranking.warnings if note.note.get("code") in _OF_SLOPES),
        ),
        decisions=tuple(
            decision_accuracy(sizes[0].name, sizes[1].name, *at, sorted(measured))
            for sizes, at in zip(pairwise(kept), pairwise(losses), strict=True)
            if len(measured) >= _FEWEST_VARIANTS
        ),
    )


_FEWEST_VARIANTS = 3
_OF_SLOPES = {"unpaired", "stuck", "unstuck", "set_apart", "several_set_apart", "uneven_plain", "noisy_references"}
"""Codes of the warnings about a ranking of slopes that hold of slopes too; the others speak of runs and seeds at one size."""


def decision_accuracy(
    smaller: str, larger: str, small: "Losses", large: "Losses", names: Sequence[str]
) -> DecisionAccuracy:
    """Share of the pairs of these variants that keep their sign from one size, or a prediction, to a larger size.

    Args:
        smaller, larger: names of the two.
        small, large: losses of each, by variant and seed.
        names: variants whose pairs count.
    """
    pairs = list(combinations(range(len(names)), 2))
    signs = []
    for losses in (small, large):
        by_seed = [_differences(losses, names[a], names[b]).values() for a, b in pairs]
        signs.append(np.array([np.sign(np.mean(list(each))) if each else 0.0 for each in by_seed]))
    kept = (signs[0] == signs[1]) & (signs[0] != 0)
    share, interval = float(kept.mean()), None
    if len(names) >= 5:
        of = np.array([[variant in pair for pair in pairs] for variant in range(len(names))])
        values = len(names) * share - (len(names) - 1) * np.array([kept[~each].mean() for each in of])
        half = half_interval(values)
        interval = (max(share - half, 0.0), min(share + half, 1.0))
    # Probability of every number of pairs in order in a random order: the variant that comes i-th joins at one of i places.
    counts = np.ones(1)
    for number in range(2, len(names) + 1):
        counts = np.convolve(counts, np.full(number, 1 / number))
    below = np.cumsum(counts)
    ends = (int(np.searchsorted(below, 0.025)), int(np.searchsorted(below, 0.975)))
    return DecisionAccuracy(
        smaller=smaller,
        larger=larger,
        pairs=len(pairs),
        kept=int(kept.sum()),
        share=share,
        interval=interval,
        chance=(ends[0] / len(pairs), ends[1] / len(pairs)),
    )


Losses = Mapping[tuple[str, int], float]
"""Losses of the finished runs of one size, by variant and seed."""


def _without(size: Size, left_out: Collection[str]) -> Size:
    known = tuple(dict.fromkeys(result.variant for result in size.results))
    for name in left_out:
        if name not in known:
            raise UnknownName("variant to be left out", name, known)
    return replace(size, results=[result for result in size.results if result.variant not in left_out])


def _check(sizes: Sequence[Size], references: Sequence[str]) -> None:
    if len(sizes) < 2:
        raise InputError(f"a trend needs at least two sizes, got {len(sizes)}. Give the runs of another size.")
    for size in sizes:
        if not (math.isfinite(size.parameters) and size.parameters > 0):
            raise InputError(f"{size.name}: expected a positive number of parameters, got {size.parameters}.")
    for one, other in pairwise(sizes):
        if one.parameters == other.parameters:
            raise InputError(
                f"{one.name} and {other.name}: expected two sizes, got {one.parameters:,.0f} parameters in both. Give runs of "
                "one size once."
            )
    if not references:
        raise InputError("a trend needs a reference to take differences from, got none. Name a variant.")
    for size in sizes:
        tabulate(size.results, references)  # refuses unknown references, and runs that cannot be compared
    runs = [run for size in sizes for run in size.results if run.state == "finished"]
    differing = {what: {getattr(run, f"{what}_hash") for run in runs} - {None} for what in ("corpus", "tokenizer")}
    differing["unit"] = {size.measure.unit or size.measure.name for size in sizes}
    for what, of in differing.items():
        if len(of) > 1:
            names, got = ", ".join(size.name for size in sizes), ", ".join(sorted(of)) if what == "unit" else len(of)
            raise InputError(f"{names}: expected one {what} for all sizes, got {got}: their losses are not comparable.")


def _losses(size: Size) -> Losses:
    return {(run.variant, run.seed): run.finished_loss for run in size.results if run.state == "finished"}


def _slopes(sizes: Sequence[Size]) -> list[Result]:
    """The slope of every variant at every seed that it has at all sizes, as a result that can be ranked.

    A variant that diverged at a seed has a diverged slope there: `rank` then withholds favourable verdicts. Runs that repeat
    others at every size have a slope that repeats theirs.
    """
    weights = _weights(np.log2([size.parameters for size in sizes]))
    copies = [repeats([run for run in size.results if run.state == "finished"]).copies for size in sizes]
    tables = [tabulate(size.results, ()) for size in sizes]
    cells: dict[tuple[str, int], list[Result]] = defaultdict(list)
    for size in sizes:
        for run in size.results:
            cells[run.variant, run.seed].append(run)
    slopes = []
    for (variant, seed), runs in cells.items():
        if any(run.state == "diverged" for run in runs):
            slopes.append(Result(variant=variant, seed=seed, state="diverged"))
        elif len(runs) == len(sizes) and all(run.state == "finished" for run in runs):
            slope = float(weights @ [run.finished_loss for run in runs])
            hashes = [run.content_hash for run in runs if run.content_hash is not None]
            # Which slopes are copies must follow from the runs, not from the slopes: two slopes of rounded losses are equal far
            # more often than by chance, because all use the same few differences of the last digit. So the identity of the
            # slope is made of hashes where every run has one, and of the printed losses otherwise.
            if len(hashes) < len(runs):
                # A slope has more digits than the losses were printed with: those tell which runs are copies.
                (name,) = (
                    same if len(same := {table.same_as.get(variant, variant) for table in tables}) == 1 else (variant,)
                )
                losses = [run.finished_loss for run in runs] if all(variant in each for each in copies) else []
                hashes = [name, *map(str, losses or [seed])]
            whole = " ".join(hashes)
            trained = any(run.trained for run in runs)
            slopes.append(Result(variant=variant, seed=seed, loss=slope, content_hash=whole, trained=trained))
    return slopes


def _weights(positions: Float[np.ndarray, " size"]) -> Float[np.ndarray, " size"]:
    """Weights of the values in the least-squares slope over the positions."""
    # Weights of a least-squares slope: they add up to 0, so that whatever a seed adds to the loss at all sizes cancels, and
    # their product with the positions is 1. A variant that lacks one size has no slope: weights of the remaining sizes would
    # measure another part of the curve.
    away = positions - positions.mean()
    return np.asarray(away / (away**2).sum())


def _level(losses: Losses, variant: str) -> float:
    own = [loss for (name, _), loss in losses.items() if name == variant]
    return float(np.mean(own)) if own else math.inf


def _differences(losses: Losses, variant: str, reference: str) -> dict[int, float]:
    return {
        seed: loss - losses[reference, seed]
        for (name, seed), loss in sorted(losses.items())
        if name == variant and (reference, seed) in losses
    }


def _warnings(
    sizes: Sequence[Size], losses: Sequence[Losses], without: Sequence[str], slopes: Sequence[Result]
) -> Iterator[str]:
    diverged = {result.variant for result in slopes if result.state == "diverged"}
    if lost := [name for name in without if name in diverged]:
        yield f"diverged, and so without a trend: {', '.join(lost)}."
    if absent := [name for name in without if name not in diverged]:
        yield f"without a seed at every size, and so without a trend: {', '.join(absent)}."
    partial: dict[str, set[int]] = {}
    counted = {(result.variant, result.seed) for result in slopes}
    for at in losses:
        for name, seed in at:
            if (name, seed) not in counted and name not in without:
                partial.setdefault(name, set()).add(seed)
    by_seeds: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, seeds in partial.items():
        by_seeds[tuple(sorted(seeds))].append(name)
    every = {result.variant for result in slopes}
    for ordered, names in by_seeds.items():
        of = "every variant" if every == set(names) else ", ".join(names)
        yield f"not at every size, and so not counted in the change: seed {', '.join(map(str, ordered))} of {of}."
    if any(not run.ended for size in sizes for run in size.results):
        yield "provisional: runs have yet to end."
