"""A ranking in three sentences: what was asked, what was found, what is open."""

from collections.abc import Iterator, Sequence

from addnorm.statistics.ranking import RESOLVABLE_SEEDS, Comparison, Ranking
from addnorm.words import Sentence, listed, say

_MOST_NAMED = 4
"""Open comparisons that are named; the others are counted."""

Pair = tuple[str, str, Comparison]


def conclusion(ranking: Ranking) -> tuple[Sentence, ...]:
    """The question, the decided comparisons and the open ones, in words.

    Example:
        >>> from addnorm.statistics import Result, rank
        >>> losses = {"base": (2.50, 2.52, 2.51), "rezero": (2.41, 2.44, 2.42)}
        >>> results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> for sentence in conclusion(rank(results, references=["base"])):
        ...     print(sentence)
        Asked: does the held-out loss of rezero differ from that of base? With 3 seeds each.
        Found, with 95 % confidence in all of it together: rezero is better than base by 0.087 nats per token (0.072 to 0.101).
        Open: nothing.
    """
    pairs = list(_pairs(ranking))
    others = [row.variant for row in ranking.variants if row.variant not in ranking.references]
    counts = sorted({row.seeds for row in ranking.variants})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
    asked = (
        say("asked", variants=_names(sorted(others)), references=_names(ranking.references), seeds=seeds)
        if others
        else say("asked_of_references", references=_names(ranking.references), seeds=seeds)
    )
    return asked, _found(ranking, pairs), _open(pairs)


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


def _found(ranking: Ranking, pairs: list[Pair]) -> Sentence:
    parts = []
    for verdict in ("better", "worse", "equivalent", "failed"):
        by_variant: dict[str, list[tuple[str, Comparison]]] = {}
        for name, other, comparison in pairs:
            if comparison.verdict == verdict:
                by_variant.setdefault(name, []).append((other, comparison))
        for name, found in by_variant.items():
            than = _names([other for other, _ in found])
            bounds = [abs(end) for _, each in found for end in each.interval or ()]
            sizes = [abs(each.difference) for _, each in found if each.difference is not None]
            if verdict in ("better", "worse") and bounds:
                values = {"size": sum(sizes) / len(sizes), "least": min(bounds), "most": max(bounds)}
                parts.append(say(f"found_{verdict}", variant=name, others=than, **values))
            elif verdict == "equivalent":
                parts.append(say("found_equivalent", variant=name, others=than, margin=ranking.margin))
            elif verdict == "failed":
                parts.append(say("found_failed", variant=name))
    if not parts:
        return say("found_nothing", confidence=100 * ranking.confidence)
    return say("found", confidence=100 * ranking.confidence, parts=listed("semicolon", parts))


def _open(pairs: list[Pair]) -> Sentence:
    unresolved = [(name, other, c) for name, other, c in pairs if c.verdict in (None, "undecided")]
    if not unresolved:
        return say("open_nothing")
    unresolved.sort(key=lambda pair: pair[2].seeds_needed or float("inf"))
    named = listed("comma", (f"{name}–{other}" for name, other, _ in unresolved[:_MOST_NAMED]))
    more = len(unresolved) - _MOST_NAMED
    which = say("open_and_more", named=named, more=more) if more > 0 else named
    nearest = unresolved[0][2].seeds_needed
    if nearest is None or nearest > RESOLVABLE_SEEDS:
        return say("open_unresolvable", count=len(unresolved), all=len(pairs), which=which)
    return say("open", count=len(unresolved), all=len(pairs), which=which, seeds=nearest)
