"""A ranking in three sentences: what was asked, what was found, what is open."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from addnorm.statistics.ranking import RESOLVABLE_SEEDS, Comparison, Ranking
from addnorm.words import Sentence, listed, say

_MOST_NAMED = 4
"""Open comparisons that are named; the others are counted."""
_MOST_LISTED = 6
"""Variants that a sentence lists; more are counted."""
_DECIDED = ("better", "worse", "equivalent", "failed")

Pair = tuple[str, str, Comparison]


def conclusion(ranking: Ranking, short: Mapping[str, str] | None = None) -> tuple[Sentence, ...]:
    """The question, the decided comparisons and the open ones, in words.

    Args:
        ranking: of the study.
        short: names to use in place of those that are in it.

    Example:
        >>> from addnorm.statistics import Result, rank
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> for sentence in conclusion(rank(results, references=["base"])):
        ...     print(sentence)
        Asked: does the held-out loss of rezero differ from that of base? Seeds of each: 3.
        Found, with 95 % confidence in all of it together: rezero is better than base by 0.087 nats per token (0.072 to 0.101).
        Open: nothing.
    """
    called = short or {}
    pairs = [(called.get(name, name), called.get(other, other), found) for name, other, found in _pairs(ranking)]
    others = [called.get(r.variant, r.variant) for r in ranking.variants if r.variant not in ranking.references]
    references = [called.get(name, name) for name in ranking.references]
    counts = sorted({row.seeds for row in ranking.variants if not row.constant} or {1})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    asked = (
        say("asked", variants=_names_or_count(sorted(others)), references=_names(references), seeds=seeds)
        if others
        else say("asked_of_references", references=_names(references), seeds=seeds)
    )
    return asked, _found(ranking, pairs), _open(pairs)


def open_comparisons(ranking: Ranking) -> list[Pair]:
    """Comparisons without a verdict as variant, reference and comparison; those that need the fewest seeds first."""
    return _unresolved(_pairs(ranking))


def _unresolved(pairs: Iterable[Pair]) -> list[Pair]:
    found = [pair for pair in pairs if pair[2].verdict in (None, "undecided")]
    return sorted(found, key=lambda pair: pair[2].seeds_needed or float("inf"))


def _names_or_count(names: Sequence[str]) -> Sentence:
    return _names(names) if len(names) <= _MOST_LISTED else say("variants_counted", count=len(names))


def _names(names: Sequence[str]) -> Sentence:
    return listed("comma" if len(names) > 2 else "and", names)


def _pairs(ranking: Ranking) -> Iterator[Pair]:
    """Every comparison once, from the variant's side."""
    told: set[frozenset[str]] = set()
    for row in ranking.variants:
        for other, comparison in row.versus.items():
            if row.variant in ranking.references and frozenset((row.variant, other)) in told:
                continue
            told.add(frozenset((row.variant, other)))
            yield row.variant, other, comparison


def _found(ranking: Ranking, pairs: Sequence[Pair]) -> Sentence:
    decided = [pair for pair in pairs if pair[2].verdict in _DECIDED]
    if len({name for name, _, _ in decided}) > _MOST_LISTED:
        references = dict.fromkeys(other for _, other, _ in decided)
        parts = [
            _against(other, [pair for pair in decided if pair[1] == other], ranking.margin) for other in references
        ]
    else:
        parts = []
        for verdict in _DECIDED:
            by_variant: dict[str, list[tuple[str, Comparison]]] = {}
            for name, other, comparison in decided:
                if comparison.verdict == verdict:
                    by_variant.setdefault(name, []).append((other, comparison))
            parts += [_of_variant(verdict, name, found, ranking.margin) for name, found in by_variant.items()]
    if not parts:
        return say("found_nothing", confidence=100 * ranking.confidence)
    return say("found", confidence=100 * ranking.confidence, parts=listed("semicolon", parts))


def _of_variant(verdict: str, name: str, found: Sequence[tuple[str, Comparison]], margin: float) -> Sentence:
    than = _names([other for other, _ in found])
    if verdict == "equivalent":
        return say("found_equivalent", variant=name, others=than, margin=margin)
    if verdict == "failed":
        return say("found_failed", variant=name)
    ends = [abs(end) for _, each in found for end in each.interval or ()]
    return say(f"found_{verdict}", variant=name, others=than, size=_mean_size(found), least=min(ends), most=max(ends))


def _against(other: str, pairs: Sequence[Pair], margin: float) -> Sentence:
    """Counts of variants by verdict against a reference."""
    parts = []
    for verdict in _DECIDED:
        sizes = {name: _mean_size([(other, each)]) for name, _, each in pairs if each.verdict == verdict}
        values: dict[str, str | int | float] = {"count": len(sizes)}
        if verdict in ("better", "worse") and sizes:
            values |= {"least": min(sizes.values()), "most": max(sizes.values())}
            values["variant"] = max(sizes, key=lambda name: sizes[name])
        elif verdict == "equivalent":
            values["margin"] = margin
        if sizes:
            form = f"one_{verdict}" if len(sizes) == 1 and verdict in ("better", "worse") else verdict
            parts.append(say(f"counted_{form}", **values))
    return say("found_against", other=other, parts=listed("comma", parts))


def _mean_size(found: Sequence[tuple[str, Comparison]]) -> float:
    sizes = [abs(each.difference) for _, each in found if each.difference is not None]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _open(pairs: Sequence[Pair]) -> Sentence:
    unresolved, count = _unresolved(pairs), len(pairs)
    if not unresolved:
        return say("open_nothing")
    named = listed("comma", (f"{name}–{other}" for name, other, _ in unresolved[:_MOST_NAMED]))
    more = len(unresolved) - _MOST_NAMED
    which = say("open_and_more", named=named, more=more) if more > 0 else named
    nearest = unresolved[0][2].seeds_needed
    if nearest is None or nearest > RESOLVABLE_SEEDS:
        return say("open_unresolvable", count=len(unresolved), all=count, which=which)
    return say("open", count=len(unresolved), all=count, which=which, seeds=nearest)
