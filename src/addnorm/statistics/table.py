"""The table that is ranked: runs checked against each other, repeats counted once, losses as an array of variant × seed.

**Repeats.** A second run with the first one's seed, data and code gives the first one's numbers: it shows that the program is
deterministic and says nothing about noise. Counted as a replicate it would make the noise look like zero. Two finished runs
are repeats if their content hashes are equal or, if either has none, if loss, accuracy and perplexity agree in every reported
digit and more often than printed digits agree by chance (`repeats`). Between two variants the digits count only if they agree
at every seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from addnorm.errors import InputError, UnknownName
from addnorm.statistics.noise import at_every_seed
from addnorm.statistics.repeats import agrees_by_chance, printed, repeats
from addnorm.statistics.result import FEWEST_SEEDS, Result
from addnorm.words import Sentence, listed, say


@dataclass(frozen=True, kw_only=True)
class LossTable:
    """Counted runs of distinct variants, and every run by variant."""

    names: tuple[str, ...]
    """Every variant, in order of first appearance."""
    distinct: tuple[str, ...]
    """The rows of `losses`: all variants except those that repeat another."""
    seeds: tuple[int, ...]
    """The columns of `losses`."""
    losses: Float[np.ndarray, "variant seed"]
    """Nats per token; NaN where no run counts."""
    accuracies: Float[np.ndarray, "variant seed"]
    present: Bool[np.ndarray, "variant seed"]
    runs: dict[str, tuple[Result, ...]]
    """Every run of each variant, by seed."""
    counted: frozenset[tuple[str, int]]
    """(variant, seed) of the runs that count."""
    same_as: dict[str, str]
    """Variants that repeat another variant at every seed: name -> the variant that stands for both."""
    warnings: tuple[Sentence, ...]

    def row(self, variant: str) -> int:
        """Row of `losses` that stands for the variant."""
        return self._rows[self.same_as.get(variant, variant)]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.distinct)}

    def at_seeds(self, seeds: Bool[np.ndarray, " seed"]) -> "LossTable":
        """The table with the runs of some seeds alone; the list of runs stays whole."""
        return replace(self, losses=np.where(seeds, self.losses, np.nan), present=self.present & seeds)

    def is_unpaired(self, pairs: Sequence[tuple[int, int]]) -> bool:
        """True if no pair of rows has enough seeds in common, unfinished runs included, and one has enough runs of each."""
        seeds = [{run.seed for run in self.runs[name]} for name in self.distinct]
        runs = self.present.sum(axis=1).tolist()
        most = max((min(runs[one], runs[other]) for one, other in pairs), default=0)
        if most < FEWEST_SEEDS or self.constant.any():
            return False
        return all(len(seeds[one] & seeds[other]) < FEWEST_SEEDS for one, other in pairs)

    def is_repeated(self, variant: str) -> bool:
        """True if a variant has several finished runs, and all of them repeat the first."""
        name = self.same_as.get(variant, variant)
        finished = [run for run in self.runs[name] if run.state == "finished"]
        return len(finished) > 1 and all((name, run.seed) not in self.counted for run in finished[1:])

    def shows_no_spread(self, variant: str) -> bool:
        """True if several runs count that cannot be distinguished: their printed losses are all equal, without a hash."""
        counted = [run for run in self.runs[variant] if (variant, run.seed) in self.counted]
        unhashed = any(run.content_hash is None for run in counted)
        return unhashed and len(counted) > 1 and len({run.loss for run in counted}) == 1

    def is_constant(self, variant: str) -> bool:
        """True for one model that was evaluated without training at several seeds, bit for bit the same."""
        finished = [run for run in self.runs[variant] if run.state == "finished"]
        return len(finished) > 1 and all(_is_same_model(finished[0], run) for run in finished)

    @cached_property
    def constant(self) -> Bool[np.ndarray, " variant"]:
        """The rows of `losses` that `is_constant`: their one value belongs to no seed."""
        return np.array([self.is_constant(name) for name in self.distinct], dtype=bool)

    @cached_property
    def at_shared_seeds(self) -> tuple[np.ndarray, np.ndarray, Bool[np.ndarray, "variant seed"]]:
        """`losses`, `accuracies` and `present`, with the value of each constant variant at every seed."""
        losses, present = at_every_seed(self.losses, self.present, self.constant)
        return losses, at_every_seed(self.accuracies, self.present, self.constant)[0], present

    def failed(self, variant: str) -> bool:
        """True if every run of the variant has ended and none has finished."""
        runs = self.runs[variant]
        return all(run.ended for run in runs) and not any(run.state == "finished" for run in runs)

    def diverged(self, variant: str) -> tuple[int, ...]:
        """Seeds at which the variant diverged."""
        return tuple(run.seed for run in self.runs[variant] if run.state == "diverged")


def tabulate(results: Sequence[Result], references: Sequence[str]) -> LossTable:
    """Check the runs against each other and arrange those that count.

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
    _require_one_run_per_cell(results)
    finished = [result for result in results if result.state == "finished"]
    _require_one_hash(finished, "corpus")
    _require_one_hash(finished, "tokenizer")

    runs, same_as, warnings = _without_repeats(finished, references)
    distinct = tuple(name for name in names if name not in same_as)
    seeds = tuple(sorted({result.seed for result in runs}))
    losses = np.full((len(distinct), len(seeds)), np.nan)
    accuracies = losses.copy()
    rows, columns = ({key: place for place, key in enumerate(of)} for of in (distinct, seeds))
    for run in runs:
        cell = rows[run.variant], columns[run.seed]
        losses[cell] = run.finished_loss
        accuracies[cell] = np.nan if run.accuracy is None else run.accuracy
    return LossTable(
        names=names,
        distinct=distinct,
        seeds=seeds,
        losses=losses,
        accuracies=accuracies,
        present=~np.isnan(losses),
        runs=_by_variant(results),
        counted=frozenset((run.variant, run.seed) for run in runs),
        same_as=same_as,
        warnings=warnings,
    )


def _by_variant(results: Sequence[Result]) -> dict[str, tuple[Result, ...]]:
    runs: dict[str, list[Result]] = {}
    for result in results:
        runs.setdefault(result.variant, []).append(result)
    return {name: tuple(sorted(of, key=lambda result: result.seed)) for name, of in runs.items()}


def _require_one_run_per_cell(results: Sequence[Result]) -> None:
    first: dict[tuple[str, int], Result] = {}
    for result in results:
        other = first.setdefault((result.variant, result.seed), result)
        if other is not result:
            raise InputError(say("two_runs", variant=result.variant, seed=result.seed, one=other.name, two=result.name))


def _require_one_hash(finished: Sequence[Result], what: str) -> None:
    by_hash: dict[str | None, Result] = {}
    for result in finished:
        by_hash.setdefault(getattr(result, f"{what}_hash"), result)
    for (one, first), (two, second) in combinations(by_hash.items(), 2):
        raise InputError(
            say(f"mixed_{what}", one=first.name, hash_one=one or "none", two=second.name, hash_two=two or "none")
        )


def _without_repeats(
    finished: Sequence[Result], references: Sequence[str]
) -> tuple[list[Result], dict[str, str], tuple[Sentence, ...]]:
    """Finished runs counted once, variants that repeat another, and warnings about what was left out.

    Of several equal runs the smallest seed stays, of several equal variants the reference.
    """
    kept, warnings = counted_once(finished, references)
    same_as, level = _repeated_variants(kept)
    warnings += [say("equal_variants", one=one, other=other) for one, other in level]
    for copy, original in same_as.items():
        warnings.append(say("same_variant", copy=copy, original=original))
    kept = [run for run in kept if run.variant not in same_as]

    counted: list[Result] = []
    first: dict[str, Result] = {}
    for run in kept:
        twin = first.setdefault(run.content_hash, run) if run.content_hash is not None else run
        if twin is run:
            counted.append(run)
        else:
            warnings.append(say("mislabelled", run=run.name, twin=twin.name))
    return counted, same_as, tuple(warnings)


def counted_once(finished: Sequence[Result], references: Sequence[str] = ()) -> tuple[list[Result], list[Sentence]]:
    """Runs without those that repeat another one of their variant, and warnings about these.

    Args:
        finished: the runs.
        references: variants whose runs come first.
    """
    ordered = sorted(finished, key=lambda result: (result.variant not in references, result.seed))
    warnings: list[Sentence] = []
    kept: list[Result] = []
    untrained: dict[str, None] = {}
    equal = repeats(finished)
    # Looked up by variant and by hash: a search through all runs for each of them would take longer than all tests.
    kept_of: dict[str, list[Result]] = {}
    hashed: dict[tuple[str, str | None], Result] = {}
    for run in ordered:
        own = kept_of.setdefault(run.variant, [])
        if run.variant in equal.copies:
            twin = next((other for other in own if _is_repeat(other, run)), None)
        else:
            twin = hashed.get((run.variant, run.content_hash)) if run.content_hash is not None else None
        if twin is None:
            kept.append(run)
            own.append(run)
            hashed[run.variant, run.content_hash] = run
        elif _is_same_model(run, twin):
            untrained[run.variant] = None
        else:
            how = say("bit_for_bit" if _has_same_hash(run, twin) else "in_every_digit")
            warnings.append(say("copy", run=run.name, twin=twin.name, how=how))

    warnings += [say("not_trained", variant=name) for name in untrained]
    if equal.by_chance:
        warnings.append(
            say(
                "equal_prints",
                runs=sum(equal.by_chance.values()),
                variants=listed("comma", (f"{name} ({count})" for name, count in equal.by_chance.items())),
                resolution=equal.resolution,
                expected=equal.expected,
            )
        )
    return kept, warnings


def _is_repeat(a: Result, b: Result) -> bool:
    if a.content_hash is not None and b.content_hash is not None:
        return a.content_hash == b.content_hash
    return printed(a) == printed(b)


def _has_same_hash(a: Result, b: Result) -> bool:
    return a.content_hash is not None and a.content_hash == b.content_hash


def _is_same_model(a: Result, b: Result) -> bool:
    return not a.trained and not b.trained and (a is b or _has_same_hash(a, b))


def _repeated_variants(kept: Sequence[Result]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Variants that repeat another, and pairs whose printed digits agree but need not be one computation."""
    by_variant: dict[str, dict[int, Result]] = {}
    for run in kept:
        by_variant.setdefault(run.variant, {})[run.seed] = run
    same_as: dict[str, str] = {}
    level: list[tuple[str, str]] = []
    # Of V variants few can be repeats. An original is looked up by the hash and by the digits of one run: comparing each
    # variant with each took half a second for a thousand.
    order = {name: place for place, name in enumerate(by_variant)}
    originals: dict[tuple[int, Any], list[str]] = {}
    for name, runs in by_variant.items():
        first = min(runs)
        digits, content = printed(runs[first]), runs[first].content_hash
        marks: list[tuple[int, Any]] = [(first, digits), *([] if content is None else [(first, content)])]
        similar = {original for mark in marks for original in originals.get(mark, ())}
        for original in sorted(similar, key=order.__getitem__):
            other = by_variant[original]
            if runs.keys() != other.keys() or not all(_is_repeat(run, other[seed]) for seed, run in runs.items()):
                continue
            hashed = all(_has_same_hash(run, other[seed]) for seed, run in runs.items())
            if hashed or not agrees_by_chance(list(runs.values()), list(other.values()), kept):
                same_as[name] = original
                break
            level.append((original, name))
        if name not in same_as:
            for mark in marks:
                originals.setdefault(mark, []).append(name)
    return same_as, level
