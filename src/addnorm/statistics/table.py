"""The table that is ranked: checked runs, counted once, as an array of variant × seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from addnorm.errors import InputError, UnknownName
from addnorm.statistics.repeats import count_once
from addnorm.statistics.result import Result
from addnorm.words import Sentence, say


@dataclass(frozen=True, kw_only=True)
class Table:
    """Counted runs of distinct variants, and every run by variant."""

    names: tuple[str, ...]
    """Every variant, in order of first appearance."""
    distinct: tuple[str, ...]
    """The rows of `losses`: all but those that repeat another variant."""
    seeds: tuple[int, ...]
    """The columns of `losses`."""
    losses: Float[np.ndarray, "variant seed"]
    """Nats per token; not a number where no run counts."""
    accuracies: Float[np.ndarray, "variant seed"]
    present: Bool[np.ndarray, "variant seed"]
    runs: dict[str, tuple[Result, ...]]
    """Every run of each variant, by seed."""
    counted: frozenset[tuple[str, int]]
    """(variant, seed) of the runs that count."""
    same_as: dict[str, str]
    warnings: tuple[Sentence, ...]

    def row(self, variant: str) -> int:
        """The row of `losses` that stands for the variant."""
        return self.distinct.index(self.same_as.get(variant, variant))

    def failed(self, variant: str) -> bool:
        """Whether every run of the variant has ended and none has finished."""
        runs = self.runs[variant]
        return all(run.ended for run in runs) and not any(run.state == "finished" for run in runs)

    def diverged(self, variant: str) -> tuple[int, ...]:
        """Seeds at which the variant diverged."""
        return tuple(run.seed for run in self.runs[variant] if run.state == "diverged")


def tabulate(results: Sequence[Result], references: Sequence[str]) -> Table:
    """Check the runs against each other and lay out those that count.

    Raises:
        UnknownName: a reference that no run belongs to.
        InputError: no runs, a reference named twice, two runs of one variant and seed, or runs on different data.
    """
    if not results:
        raise InputError(say("no_runs"))
    names = tuple(dict.fromkeys(result.variant for result in results))
    for position, reference in enumerate(references):
        if reference not in names:
            raise UnknownName("variant to be the reference", reference, names)
        if reference in references[:position]:
            raise InputError(say("reference_twice", reference=reference))
    _refuse_double_cells(results)
    finished = [result for result in results if result.state == "finished"]
    _refuse_mixed(finished, "corpus")
    _refuse_mixed(finished, "tokenizer")

    counted = count_once(finished, references)
    distinct = tuple(name for name in names if name not in counted.same_as)
    seeds = tuple(sorted({result.seed for result in counted.runs}))
    losses = np.full((len(distinct), len(seeds)), np.nan)
    accuracies = losses.copy()
    for run in counted.runs:
        cell = distinct.index(run.variant), seeds.index(run.seed)
        losses[cell] = run.finished_loss
        accuracies[cell] = np.nan if run.accuracy is None else run.accuracy
    return Table(
        names=names,
        distinct=distinct,
        seeds=seeds,
        losses=losses,
        accuracies=accuracies,
        present=~np.isnan(losses),
        runs={name: tuple(sorted((r for r in results if r.variant == name), key=lambda r: r.seed)) for name in names},
        counted=frozenset((run.variant, run.seed) for run in counted.runs),
        same_as=counted.same_as,
        warnings=counted.warnings,
    )


def _refuse_double_cells(results: Sequence[Result]) -> None:
    seen: dict[tuple[str, int], Result] = {}
    for result in results:
        other = seen.setdefault((result.variant, result.seed), result)
        if other is not result:
            raise InputError(say("two_runs", variant=result.variant, seed=result.seed, one=other.name, two=result.name))


def _refuse_mixed(finished: Sequence[Result], what: str) -> None:
    by_hash: dict[str | None, Result] = {}
    for result in finished:
        by_hash.setdefault(getattr(result, f"{what}_hash"), result)
    for (one, first), (two, second) in combinations(by_hash.items(), 2):
        raise InputError(
            say(f"mixed_{what}", one=first.name, hash_one=one or "none", two=second.name, hash_two=two or "none")
        )
