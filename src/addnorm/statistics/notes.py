"""Limits of a ranking that a reader has to know, one sentence each."""

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

from addnorm.statistics.ranking import Ranking
from addnorm.statistics.result import FEWEST_SEEDS, ending_reason
from addnorm.statistics.table import LossTable
from addnorm.words import Sentence, listed, say

_MOST_NAMED = 5
"""Noisy variants that are named, the noisiest first; the others are counted."""
_MANY = 11
"""Comparisons with one reference and three seeds beyond which its own seed effect makes false claims in over 7 % of studies."""


def notes(ranking: Ranking, table: LossTable) -> tuple[Sentence, ...]:
    """Everything that limits the ranking; empty when nothing does."""
    return (
        *_plan(ranking, table),
        *_chosen(ranking),
        *_tuning(ranking),
        *_replication(ranking),
        *_one_sample(ranking),
        *_tuning_seeds(ranking),
        *_unpaired(ranking),
        *_losses(table),
        *_adjusted(ranking),
        *_too_few(ranking),
        *_stuck(ranking),
        *_set_apart(ranking),
        *_uneven(ranking),
        *_noisy_references(ranking),
        *_seeds_differ(ranking),
        *_quiet(ranking),
        *_text(ranking),
        *_references(ranking),
        *_accuracy(ranking),
    )


def _plan(ranking: Ranking, table: LossTable) -> list[Sentence]:
    sentences = []
    if ranking.provisional:
        # By name: at lengths, a run is in the table once for every switch.
        open_runs = {r.name for runs in table.runs.values() for r in runs if not r.ended}
        sentences.append(say("provisional", runs=len(open_runs)))
    sentences += _stages(ranking)
    if ranking.added_after_look:
        sentences.append(say("added_after_look", seeds=listed("comma", ranking.added_after_look)))
    unplanned = [r for runs in table.runs.values() for r in runs if not r.planned and r.state == "finished"]
    unseen = sorted({r.seed for r in unplanned} - set(ranking.added_after_look))
    if unseen:
        sentences.append(say("unplanned", seeds=_seeds(unseen)))
    return sentences


def _chosen(ranking: Ranking) -> list[Sentence]:
    """Pairs that a study compares in place of every variant with every reference, and the variants that are in none."""
    if ranking.pairs is None:
        return []
    among = sum(row.variant in ranking.references for row in ranking.variants)
    every = among * (len(ranking.variants) - among) + among * (among - 1) // 2
    sentences = [say("chosen_pairs", pairs=len(ranking.pairs), all=every)]
    compared = {name for pair in ranking.pairs for name in pair}
    alone = [row.variant for row in ranking.variants if row.variant not in compared]
    return [*sentences, say("not_compared", variants=listed("comma", alone))] if alone else sentences


def _stages(ranking: Ranking) -> list[Sentence]:
    progress = ranking.stages
    if progress is None:
        return []
    looks = progress.design.looks
    sentences = [
        say(
            "stages",
            complete=progress.complete,
            looks=len(looks),
            seeds=looks[max(progress.complete, 1) - 1],
            most=looks[-1],
            confidence=100 * ranking.confidence,
        )
    ]
    if progress.continuing:
        open_pairs = len(progress.undecided) - len(progress.hopeless)
        sentences.append(say("stages_open", open=open_pairs, variants=listed("comma", progress.continuing)))
    elif progress.complete:
        sentences.append(say("stages_over", undecided=len(progress.undecided)))
    if progress.hopeless:
        pairs = listed("comma", (f"{one}–{other}" for one, other in progress.hopeless))
        sentences.append(say("stages_hopeless", pairs=pairs, most=looks[-1]))
    return sentences


def _tuning(ranking: Ranking) -> list[Sentence]:
    if ranking.tuning is None:
        return []
    return [say("tuned", seeds=listed("comma", ranking.tuning.seeds)), *ranking.tuning.notes]


def _replication(ranking: Ranking) -> list[Sentence]:
    """States of the found verdicts of a study with a second batch of seeds."""
    pairs: dict[str, list[str]] = {}
    for name, other, comparison in ranking.comparisons:
        if comparison.again is not None:
            pairs.setdefault(comparison.again.state, []).append(f"{name}–{other}")
    seeds = listed("comma", ranking.second)
    codes = {"found again": "found_again", "not found again": "not_found_again", "found": "found_once"}
    return [say(code, seeds=seeds, pairs=listed("comma", pairs[s])) for s, code in codes.items() if s in pairs]


def _one_sample(ranking: Ranking) -> list[Sentence]:
    """Verdicts that rest on the same runs of one reference are one event, unless other runs of it have found them again."""
    sentences = []
    for reference in ranking.references:
        for verdict in ("better", "worse"):
            names = [
                row.variant
                for row in ranking.variants
                if (comparison := row.versus.get(reference)) is not None
                and comparison.verdict == verdict
                and (comparison.again is None or comparison.again.state != "found again")
                and row.variant not in ranking.references
            ]
            if len(names) > 1:
                runs = ranking[reference].seeds
                code = f"one_sample_{verdict}" if ranking.measure.better == "lower" else f"one_sample_{verdict}_score"
                sentences.append(say(code, reference=reference, verdicts=len(names), runs=runs))
    return sentences


def _tuning_seeds(ranking: Ranking) -> list[Sentence]:
    """Verdicts whose sign the tuning seeds of the chosen points do not have."""
    sentences = []
    for name, other, comparison in ranking.comparisons:
        if comparison.verdict not in ("better", "worse") or not comparison.tuning:
            continue
        values = list(comparison.tuning.values())
        mean, lower = sum(values) / len(values), sum(value < 0 for value in values)
        if (mean > 0) == (comparison.verdict == "better") and mean != 0:
            sentences.append(
                say("tuning_differs", variant=name, other=other, seeds=len(values), difference=mean, lower=lower)
            )
    return sentences


def _losses(table: LossTable) -> list[Sentence]:
    sentences = []
    for name, runs in table.runs.items():
        lost = [run for run in runs if run.state in ("failed", "diverged", "blocked")]
        if lost:
            kinds = dict.fromkeys((run.state, run.reason) for run in lost)
            endings = listed(
                "semicolon",
                (
                    _ending(_seeds([r.seed for r in lost if (r.state, r.reason) == (state, reason)]), state, reason)
                    for state, reason in kinds
                ),
            )
            if any(run.state == "finished" for run in runs):
                sentences.append(say("lost_some", variant=name, endings=endings, seeds=len(runs)))
            else:
                sentences.append(say("lost", variant=name, endings=endings))
    return sentences


def _adjusted(ranking: Ranking) -> list[Sentence]:
    """Variants whose order by their own means is not the order of the rows, which compares them at the same seeds."""
    rows = [
        (row.variant, row.mean, row.adjusted_mean)
        for row in ranking.variants
        if row.mean is not None and row.adjusted_mean is not None and not row.constant
    ]
    higher = ranking.measure.better == "higher"
    turned: dict[str, Sentence] = {}
    for upper, lower in pairwise(rows):
        first, second = (upper, lower) if higher else (lower, upper)
        # Where all have the same seeds, means and adjusted means differ by rounding alone.
        if first[1] < second[1] and not math.isclose(first[1], second[1], rel_tol=1e-9):
            for name, mean, adjusted in (upper, lower):
                turned[name] = say("adjusted_of", variant=name, mean=mean, adjusted=adjusted)
    return [say("adjusted", each=listed("comma", turned.values()))] if turned else []


def _unpaired(ranking: Ranking) -> list[Sentence]:
    return [say("unpaired")] if ranking.unpaired else []


def _ending(which: Sentence, state: str, reason: str | None) -> Sentence:
    ending = say(f"state_{state}")
    return (
        say("ended_because", which=which, state=ending, reason=ending_reason(reason))
        if reason
        else say("ended", which=which, state=ending)
    )


def _seeds(seeds: list[int]) -> Sentence:
    return say("several_seeds" if len(seeds) > 1 else "one_seed", seeds=listed("comma", seeds))


def _too_few(ranking: Ranking) -> list[Sentence]:
    comparisons = [c for _, _, c in ranking.comparisons if c.difference is not None]
    if not comparisons or any(c.verdict is not None or c.seeds >= FEWEST_SEEDS for c in comparisons):
        return []
    repeated = [f"{row.variant} ({row.seeds})" for row in ranking.variants if row.seeds > 1 and row.same_as is None]
    sentences = [say("no_verdict_repeated", variants=listed("comma", repeated)) if repeated else say("no_verdict")]
    if ranking.noise_df == 0:
        sentences.append(say("unknown_noise"))
    needed = sorted(c.seeds_needed for c in comparisons if c.seeds_needed is not None)
    if needed:
        known = (
            say("assumed", sd=ranking.assumed_sd)
            if ranking.assumed_sd is not None
            else say("measured", sd=ranking.noise_sd if ranking.noise_sd is not None else 0.0)
        )
        sentences.append(
            say(
                "what_it_takes" if ranking.measure.in_nats else "what_it_takes_plain",
                known=known,
                half=needed[(len(needed) - 1) // 2],
                comparisons=len(needed),
                all=needed[-1],
            )
        )
    return sentences


def _stuck(ranking: Ranking) -> list[Sentence]:
    sentences = []
    for of in ranking.stuck:
        share, low, high = of.share
        sentences.append(
            say(
                "stuck",
                variant=of.variant,
                stuck=len(of.seeds),
                runs=of.runs,
                seeds=_seeds(list(of.seeds)),
                gap=of.gap,
                share=100 * share,
                low=100 * low,
                high=100 * high,
            )
        )
        if of.unstuck:
            each = listed("comma", (say("unstuck_of", other=o, difference=d) for o, d in of.unstuck.items()))
            sentences.append(say("unstuck", variant=of.variant, differences=each))
    return sentences


def _set_apart(ranking: Ranking) -> list[Sentence]:
    if not ranking.set_apart or ranking.noise_sd is None:
        return []
    known = {row.variant: row.residual_sd or 0.0 for row in ranking.variants}
    code = "noise_of" if ranking.measure.in_nats else "noise_of_plain"
    shown: Sequence[str] = ranking.set_apart
    if len(shown) > _MOST_NAMED:
        shown = sorted(shown, key=known.__getitem__, reverse=True)[:_MOST_NAMED]
    each = listed(
        "and" if shown is ranking.set_apart else "comma", (say(code, variant=name, sd=known[name]) for name in shown)
    )
    if len(shown) < len(ranking.set_apart):
        each = say("open_and_more", named=each, more=len(ranking.set_apart) - len(shown))
    return [
        say("set_apart" if len(ranking.set_apart) == 1 else "several_set_apart", variants=each, rest=ranking.noise_sd)
    ]


def _uneven(ranking: Ranking) -> list[Sentence]:
    if ranking.noise_even:
        return []
    retained = [row for row in ranking.variants if row.variant not in ranking.set_apart]
    spread = sorted((row.residual_sd, row.variant) for row in retained if row.residual_sd is not None)
    (least, quiet), (most, noisy) = spread[0], spread[-1]
    code = "uneven" if ranking.measure.in_nats else "uneven_plain"
    return [say(code, quiet=quiet, least=least, noisy=noisy, most=most)]


def _noisy_references(ranking: Ranking) -> list[Sentence]:
    if not ranking.noisy_references:
        return []
    return [say("noisy_references", names=listed("and", ranking.noisy_references))]


def _seeds_differ(ranking: Ranking) -> list[Sentence]:
    """Seeds act on the references in their own way, or three seeds of an only reference could not show that they do."""
    if ranking.seeds_differ:
        return [say("seeds_differ", names=listed("and", ranking.seeds_differ))]
    tested = [row.versus[name] for name in ranking.references for row in ranking.variants if name in row.versus]
    counts = {comparison.seeds for comparison in tested if comparison.p is not None}
    if len(ranking.references) == 1 and ranking.family > _MANY and counts == {FEWEST_SEEDS} and not ranking.unpaired:
        return [say("only_reference", name=ranking.references[0], comparisons=ranking.family)]
    return []


def _quiet(ranking: Ranking) -> list[Sentence]:
    pairs = ["–".join(sorted((name, other))) for name, other, comparison in ranking.comparisons if comparison.quiet]
    return [say("quiet_pairs", pairs=listed("comma", pairs))] if pairs else []


def _text(ranking: Ranking) -> list[Sentence]:
    """Differences that another text would move as far as other seeds."""
    pairs = [
        say("text_error_of", variant=name, other=other, text=comparison.text_error, seeds=comparison.standard_error)
        for name, other, comparison in ranking.comparisons
        if comparison.verdict in ("better", "worse", "equivalent")
        and comparison.text_error is not None
        and comparison.standard_error is not None
        and comparison.text_error >= comparison.standard_error
    ]
    return [say("text_error", pairs=listed("comma", pairs))] if pairs else []


def _references(ranking: Ranking) -> list[Sentence]:
    # References that were not compared with each other share a line too; nothing was found about them.
    tested = None if ranking.pairs is None else frozenset(map(frozenset, ranking.pairs))
    return [
        say("references_level", names=listed("and", line))
        for line in ranking.lines
        if len(line) > 1 and (tested is None or all({*pair} in tested for pair in combinations(line, 2)))
    ]


def _accuracy(ranking: Ranking) -> list[Sentence]:
    return [
        say("accuracy_disagrees", variant=name, other=other, loss=c.difference, points=100 * c.accuracy_difference)
        for name, other, c in ranking.comparisons
        if c.accuracy_agrees is False and c.verdict not in ("undecided", "equivalent", "failed")
        if c.difference is not None and c.accuracy_difference is not None
    ]
