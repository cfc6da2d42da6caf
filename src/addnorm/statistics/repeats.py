"""Runs that repeat another run bit for bit are counted once.

A second run with the first one's seed, data and code gives the first one's numbers: it says that the program is
deterministic and nothing about noise. Counted as a replicate it would make the noise look like zero.

Two finished runs are the same when their content hashes are equal or, if either has none, when loss, accuracy and
perplexity agree in every reported digit. Between two variants the digits alone say that only if they agree at every
seed: at four digits, one pair of equal losses among many is an ordinary coincidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.statistics.result import Result
from addnorm.words import Sentence, say


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The runs that carry information, and what was set aside."""

    runs: tuple[Result, ...]
    """Finished runs, each counted once."""
    same_as: dict[str, str]
    """Variants that are another variant bit for bit: name -> the variant that stands for both."""
    warnings: tuple[Sentence, ...]


def count_once(finished: Sequence[Result], references: Sequence[str]) -> Counted:
    """Set aside the runs that repeat another; the smallest seed, and among variants the reference, stays."""
    ordered = sorted(finished, key=lambda r: (r.variant not in references, r.seed))
    warnings: list[Sentence] = []
    kept: list[Result] = []
    for run in ordered:
        twin = next((k for k in kept if k.variant == run.variant and _same(k, run)), None)
        if twin is None:
            kept.append(run)
        else:
            warnings.append(say("copy", run=run.name, twin=twin.name, how=_how(run, twin)))

    same_as = _same_variants(kept)
    for copy, original in same_as.items():
        warnings.append(say("same_variant", copy=copy, original=original))
    kept = [run for run in kept if run.variant not in same_as]

    single: list[Result] = []
    for run in kept:
        twin = next((k for k in single if _same_hash(k, run)), None)
        if twin is None:
            single.append(run)
        else:
            warnings.append(say("mislabelled", run=run.name, twin=twin.name))
    return Counted(runs=tuple(single), same_as=same_as, warnings=tuple(warnings))


def _same(a: Result, b: Result) -> bool:
    if a.content_hash is not None and b.content_hash is not None:
        return a.content_hash == b.content_hash
    return (a.loss, a.accuracy, a.perplexity) == (b.loss, b.accuracy, b.perplexity)


def _same_hash(a: Result, b: Result) -> bool:
    return a.content_hash is not None and a.content_hash == b.content_hash


def _how(a: Result, b: Result) -> Sentence:
    return say("bit_for_bit" if _same_hash(a, b) else "in_every_digit")


def _same_variants(kept: Sequence[Result]) -> dict[str, str]:
    by_variant: dict[str, dict[int, Result]] = {}
    for run in kept:
        by_variant.setdefault(run.variant, {})[run.seed] = run
    same_as: dict[str, str] = {}
    originals: list[str] = []
    for name, runs in by_variant.items():
        for original in originals:
            other = by_variant[original]
            if runs.keys() == other.keys() and all(_same(run, other[seed]) for seed, run in runs.items()):
                same_as[name] = original
                break
        else:
            originals.append(name)
    return same_as
