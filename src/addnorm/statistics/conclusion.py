"""A ranking in three sentences: what was asked, what was decided, what is open.

Every sentence follows from the verdicts and their reasons. Without a verdict nothing is said of differences: that no test was
made, or that a test decided nothing, is no evidence that there is no difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from addnorm.statistics.measure import LOSS_OF_ANSWERS
from addnorm.statistics.pairs.comparison import VariantComparison
from addnorm.statistics.ranking import RESOLVABLE_SEEDS, Ranking
from addnorm.words import Sentence, listed, say

_MOST_NAMED = 4
"""Open comparisons that are named; the others are counted."""
_LEAST_SHOWN = 0.0005
"""Nats per token below which three decimals would print nothing."""
_MOST_LISTED = 6
"""Variants that a sentence lists; more are counted."""
_DECIDED = ("better", "worse", "equivalent", "failed")
_TESTED = ("better", "worse", "equivalent", "undecided")
_AGAIN = {"found again": "again_found", "not found again": "again_lost", "found": "again_waiting"}
_MOST_REASONS = 3
"""Reasons that a sentence lists where comparisons have different ones."""

Pair = tuple[str, str, VariantComparison]


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
    pairs = [(called.get(name, name), called.get(other, other), each) for name, other, each in ranking.comparisons]
    others = [called.get(r.variant, r.variant) for r in ranking.variants if r.variant not in ranking.references]
    references = [called.get(name, name) for name in ranking.references]
    counts = sorted({row.seeds for row in ranking.variants if not row.constant} or {1})
    values: dict[str, str | Sentence] = {
        "references": _names(references),
        "seeds": f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}",
    }
    in_nats = ranking.measure.in_nats and not ranking.measure.name.startswith("exit_")  # of a part of the model
    if not in_nats:
        values["measure"] = ranking.measure.name
    if ranking.pairs is not None:
        code = "asked_of_pairs" if in_nats else "asked_of_pairs_plain"
        asked = say(code, variants=_names_or_count(sorted(others) or references), pairs=len(ranking.pairs), **values)
    elif others:
        asked = say("asked" if in_nats else "asked_plain", variants=_names_or_count(sorted(others)), **values)
    else:
        asked = say("asked_of_references" if in_nats else "asked_of_references_plain", **values)
    return asked, _found(ranking, pairs), _open(pairs)


def _say(ranking: Ranking, code: str, **values: str | float | Sentence) -> Sentence:
    """A sentence about a loss in nats, or its form for another measure, which ends in `_plain` and has the measure's unit."""
    small = any(isinstance(value, float) and 0 < value < _LEAST_SHOWN for value in values.values())
    if ranking.measure.in_nats and not small:
        return say(code, **values)
    unit: str | Sentence = f" {ranking.measure.unit}" if ranking.measure.unit else ""
    if ranking.measure.in_nats:
        unit = say("unit_of_losses")
    elif ranking.measure == LOSS_OF_ANSWERS:
        unit = say("unit_of_answers")
    return say(f"{code}_plain", unit=unit, **values)


def open_comparisons(ranking: Ranking) -> list[Pair]:
    """Comparisons without a verdict as variant, reference and comparison; those that need the fewest seeds first."""
    return _unresolved(ranking.comparisons)


def _unresolved(pairs: Iterable[Pair]) -> list[Pair]:
    unresolved = [pair for pair in pairs if pair[2].verdict in (None, "undecided")]
    return sorted(unresolved, key=lambda pair: pair[2].seeds_needed or float("inf"))


def _names_or_count(names: Sequence[str]) -> Sentence:
    return _names(names) if len(names) <= _MOST_LISTED else say("variants_counted", count=len(names))


def _names(names: Sequence[str]) -> Sentence:
    return listed("comma" if len(names) > 2 else "and", names)


def _found(ranking: Ranking, pairs: Sequence[Pair]) -> Sentence:
    decided = [pair for pair in pairs if pair[2].verdict in _DECIDED]
    if not decided:
        return _undecided(ranking, pairs)
    if len({name for name, _, _ in decided}) > _MOST_LISTED:
        references = dict.fromkeys(other for _, other, _ in decided)
        parts = [_against(ranking, other, [pair for pair in decided if pair[1] == other]) for other in references]
    else:
        parts = []
        for verdict in _DECIDED:
            by_variant: dict[str, list[tuple[str, VariantComparison]]] = {}
            for name, other, comparison in decided:
                if comparison.verdict == verdict:
                    by_variant.setdefault(name, []).append((other, comparison))
            for name, of in by_variant.items():
                parts += _of_variant(ranking, verdict, name, of)
    listing = listed("semicolon", parts)
    if all(comparison.verdict == "failed" for _, _, comparison in decided):
        return say("found_untested", parts=listing)
    sentence = say("found", confidence=100 * ranking.confidence, parts=listing)
    states: dict[str, list[str]] = {}
    for name, other, comparison in decided:
        if comparison.again is not None:
            states.setdefault(comparison.again.state, []).append(f"{name}–{other}")
    if not states:
        return sentence
    again = [say(code, pairs=listed("comma", states[state])) for state, code in _AGAIN.items() if state in states]
    seeds = listed("comma", ranking.second)
    return say("found_and_again", found=sentence, seeds=seeds, parts=listed("semicolon", again))


def _undecided(ranking: Ranking, pairs: Sequence[Pair]) -> Sentence:
    """Reasons for which nothing is decided: no comparison, no test that was possible, or tests that left all open."""
    if not pairs:
        return say("found_no_comparison")
    tested = sum(comparison.verdict in _TESTED for _, _, comparison in pairs)
    if tested:
        code = "found_undecided" if tested > 1 else "found_one_undecided"
        return say(code, count=tested, confidence=100 * ranking.confidence)
    reasons = dict.fromkeys(str(comparison.reason) for _, _, comparison in pairs)
    if len(reasons) == 1 and (reason := pairs[0][2].reason) is not None:
        return say("found_no_verdict", reasons=reason)
    each = [
        say("found_reason", variant=name, other=other, reason=comparison.reason)
        for name, other, comparison in pairs
        if comparison.reason is not None
    ]
    shown = listed("semicolon", each[:_MOST_REASONS])
    if len(each) > _MOST_REASONS:
        shown = say("open_and_more", named=shown, more=len(each) - _MOST_REASONS)
    return say("found_no_verdict", reasons=shown)


def _of_variant(
    ranking: Ranking, verdict: str, name: str, of: Sequence[tuple[str, VariantComparison]]
) -> Iterator[Sentence]:
    if verdict == "equivalent":
        than = _names([other for other, _ in of])
        yield _say(ranking, "found_equivalent", variant=name, others=than, margin=ranking.margin)
    elif verdict == "failed":
        yield say("found_failed", variant=name)
    else:
        # Each reference with its own size: a mean over two of them is a difference that nothing was compared with.
        for other, each in of:
            least, most = sorted(abs(end) for end in each.interval or (0.0, 0.0))
            size = _size(each)
            yield _say(ranking, f"found_{verdict}", variant=name, others=other, size=size, least=least, most=most)


def _against(ranking: Ranking, other: str, pairs: Sequence[Pair]) -> Sentence:
    """Counts of variants by verdict against a reference."""
    parts = []
    for verdict in _DECIDED:
        sizes = {name: _size(each) for name, _, each in pairs if each.verdict == verdict}
        if not sizes:
            continue
        if verdict == "failed":
            parts.append(say("counted_failed", count=len(sizes)))
        elif verdict == "equivalent":
            parts.append(_say(ranking, "counted_equivalent", count=len(sizes), margin=ranking.margin))
        else:
            largest = max(sizes, key=lambda name: sizes[name])
            least, most = min(sizes.values()), max(sizes.values())
            if len(sizes) == 1:
                parts.append(_say(ranking, f"counted_one_{verdict}", variant=largest, least=least))
            else:
                code = f"counted_{verdict}"
                parts.append(_say(ranking, code, count=len(sizes), least=least, most=most, variant=largest))
    return say("found_against", other=other, parts=listed("comma", parts))


def _size(comparison: VariantComparison) -> float:
    return abs(comparison.difference or 0.0)


def _open(pairs: Sequence[Pair]) -> Sentence:
    unresolved, count = _unresolved(pairs), len(pairs)
    if not unresolved:
        return say("open_nothing")
    named = listed("comma", (f"{name}–{other}" for name, other, _ in unresolved[:_MOST_NAMED]))
    more = len(unresolved) - _MOST_NAMED
    which = say("open_and_more", named=named, more=more) if more > 0 else named
    nearest = unresolved[0][2].seeds_needed
    if nearest is None and any(comparison.verdict is None for _, _, comparison in unresolved):
        # Not tested: what it would take is unknown, or is no matter of seeds.
        return say("open_untested", count=len(unresolved), all=count, which=which)
    if nearest is None or nearest > RESOLVABLE_SEEDS:
        return say("open_unresolvable", count=len(unresolved), all=count, which=which)
    if len(unresolved) == 1:
        return say("open_one", all=count, which=which, seeds=nearest)
    return say("open", count=len(unresolved), all=count, which=which, seeds=nearest)
