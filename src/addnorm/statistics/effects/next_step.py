"""The next step after a ranking: report it, wait, run seeds, correct the table, or leave comparisons open."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from addnorm.statistics.conclusion import Pair, open_comparisons
from addnorm.statistics.ranking import RESOLVABLE_SEEDS, Ranking
from addnorm.statistics.result import FEWEST_SEEDS
from addnorm.words import Sentence, listed, say

Action = Literal[
    "report", "wait", "run_seeds", "run_new_seeds", "continue_study", "correct", "leave_open", "add_variant"
]
_TOO_FEW = ("one_shared", "several_shared", "few_runs", "nothing_shared")
"""Reasons for which a comparison was not tested that further seeds remove."""


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """The next action, with what it needs."""

    action: Action
    sentence: Sentence
    """The action in words."""
    seeds: int | None = None
    """Of `run_seeds`, the seeds that each variant has to have in all; of `run_new_seeds`, those to run besides."""
    variants: tuple[str, ...] = ()
    """To be run, or to be corrected."""

    def to_json(self) -> dict[str, Any]:
        """The step as plain JSON values."""
        return {
            "action": self.action,
            "seeds": self.seeds,
            "variants": list(self.variants),
            "sentence": str(self.sentence),
        }


# The order matters. Until all runs have ended, every other advice may be wrong. Seeds come before corrections, because they
# are needed whatever becomes of a variant that has no result. Advice for one comparison, the nearest to a verdict, keeps the
# cost small; after it, the ranking is asked again.
def next_step(ranking: Ranking) -> NextStep:
    """The next action after a ranking.

    Seeds are not added to a table that was tested: that would be another look at the same runs, and the error rate holds for
    one. Such a comparison is run again at new seeds, which are ranked alone.

    Args:
        ranking: of a study, or of a table.

    Example:
        >>> from addnorm.statistics import Result, rank
        >>> losses = {"base": (2.50, 2.52), "rezero": (2.41, 2.44)}
        >>> results = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
        >>> step = next_step(rank(results, references=["base"]))
        >>> step.action, step.seeds, step.variants
        ('run_seeds', 3, ('base', 'rezero'))
    """
    unresolved = open_comparisons(ranking)
    if ranking.stages is not None and ranking.stages.continuing:
        return NextStep(action="continue_study", sentence=say("next_stage_run"), variants=ranking.stages.continuing)
    if ranking.provisional or (ranking.tuning is not None and not ranking.tuning.is_complete):
        return NextStep(action="wait", sentence=say("next_wait"))
    if not ranking.comparisons:
        return NextStep(action="add_variant", sentence=say("next_add_variant"))
    if not unresolved:
        lost = [pair for pair in ranking.comparisons if pair[2].again and pair[2].again.state == "not found again"]
        if lost:
            pairs = listed("comma", [f"{name}–{other}" for name, other, _ in lost])
            return NextStep(action="report", sentence=say("next_report_both", pairs=pairs))
        return NextStep(action="report", sentence=say("next_report"))
    few = [pair for pair in unresolved if pair[2].verdict is None and pair[2].reason_code in _TOO_FEW]
    if few and (least := min(map(_in_all, few))) <= RESOLVABLE_SEEDS:
        names = _names(ranking, (pair for pair in few if _in_all(pair) == least))
        which = listed("comma" if len(names) > 2 else "and", names)
        sentence = say("next_run", variants=which, seeds=least, fewest=FEWEST_SEEDS)
        return NextStep(action="run_seeds", sentence=sentence, seeds=least, variants=names)
    nearest = next((pair for pair in unresolved if pair[2].verdict == "undecided"), None)
    if nearest is not None and (seeds := nearest[2].seeds_needed) is not None and seeds <= RESOLVABLE_SEEDS:
        names = _names(ranking, [nearest])
        sentence = say("next_run_new", variants=listed("and", names), seeds=seeds)
        return NextStep(action="run_new_seeds", sentence=sentence, seeds=seeds, variants=names)
    for name, other, comparison in unresolved:
        if comparison.verdict is None and comparison.reason is not None and comparison.reason_code not in _TOO_FEW:
            sentence = say("next_correct", variant=name, other=other, reason=comparison.reason)
            return NextStep(action="correct", sentence=sentence, variants=(name, other))
    return NextStep(action="leave_open", sentence=say("next_leave_open", count=len(unresolved)))


def _in_all(pair: Pair) -> int:
    """Seeds of each variant that a comparison without a test needs."""
    return max(pair[2].seeds_needed or 0, FEWEST_SEEDS)


def _names(ranking: Ranking, pairs: Iterable[Pair]) -> tuple[str, ...]:
    """Every variant of the pairs once, references first."""
    named = {name for first, second, _ in pairs for name in (first, second)}
    return tuple(sorted(named, key=lambda name: (name not in ranking.references, name)))
