"""The study's question, the answer that its verdicts allow, what stays open, and what the seeds for it would cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.measured import RankingFormats
from addnorm.reporting.formats.numbers import mean_of_known
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking
from addnorm.statistics.conclusion import conclusion, open_comparisons
from addnorm.statistics.effects.next_step import next_step
from addnorm.statistics.measure import Metric
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.store import Damaged, RunFolder
from addnorm.store.questions.source import median_speed
from addnorm.words import Sentence, phrases


@dataclass(frozen=True, kw_only=True)
class Price:
    """Runs that the nearest open comparison still needs, and what they take."""

    variant: str
    reference: str
    runs: int
    tokens: int | None
    """None for a plan that was not made by `addnorm run`."""
    training_s: float | None
    """Time of these runs one after the other, at the speed of the finished runs of the same variants; None without any."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Question and answer of a study, in sentences."""

    question: str
    """As its author wrote it; empty without one."""
    asked: Sentence | None
    result: Sentence | None
    open: Sentence | None
    """These three are None before anything can be ranked."""
    price: Price | None
    """None if nothing is open, or if it cannot be resolved."""
    provisional: bool
    step: Sentence | None = None
    """The next step, of a table of runs."""
    others: tuple[tuple[Metric, Sentence, Sentence], ...] = ()
    """Metrics beside the first one, with what was found and what is open."""


class AnswerSection(Section):
    """The answer, which opens the overview and the report."""

    order = 5
    pages = ("overview",)
    sources = frozenset({"study", "table"})
    in_report = "opening"
    follows = frozenset({"ranking"})
    shows_results = True

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        t, answered = phrases(view.language), answer(snapshot)
        others = [(RankingFormats.of_measure(of, t).title, decided, left) for of, decided, left in answered.others]
        return {"answer": answered, "others": others, "no_ranking": snapshot.no_ranking}


def answer(snapshot: Snapshot) -> Answer:
    """The study's question and answer as they stand."""
    ranking = snapshot.ranking
    has_results = ranking is not None and any(row.mean is not None for row in ranking.variants)
    sentences = conclusion(ranking, snapshot.wide_names) if ranking is not None and has_results else (None,) * 3
    asked, result, still_open = sentences
    return Answer(
        question=str(snapshot.plan.get("about", "")),
        asked=asked,
        result=result,
        open=still_open,
        price=_price(snapshot) if has_results and snapshot.is_study else None,
        provisional=ranking is not None and ranking.provisional,
        others=() if ranking is None else tuple(_beside(of, snapshot) for of in ranking.others),
        step=next_step(ranking).sentence if ranking is not None and snapshot.source == "table" else None,
    )


def _beside(ranking: Ranking, snapshot: Snapshot) -> tuple[Metric, Sentence, Sentence]:
    _, decided, left = conclusion(ranking, snapshot.wide_names)
    return ranking.measure, decided, left


def _price(snapshot: Snapshot) -> Price | None:
    if snapshot.ranking is None:
        return None
    variant, reference, comparison = next(iter(open_comparisons(snapshot.ranking)), (None, None, None))
    if variant is None or reference is None or comparison is None or comparison.seeds_needed is None:
        return None
    if comparison.seeds_needed > RESOLVABLE_SEEDS:
        return None
    # Of a comparison that was tested, all seeds are new ones: further seeds beside those would be a second look at them. Stages
    # are looks that were planned.
    again = comparison.verdict == "undecided" and snapshot.ranking.stages is None
    missing = {
        name: comparison.seeds_needed if again else max(0, comparison.seeds_needed - snapshot.ranking[name].seeds)
        for name in (variant, reference)
    }
    tokens = {name: _tokens(snapshot.of(name)[0]) for name in missing}
    finished = {name: [run for run in snapshot.of(name) if run.state == "finished"] for name in missing}
    times = {name: mean_of_known([_seconds(snapshot, run) for run in runs]) for name, runs in finished.items()}
    return Price(
        variant=variant,
        reference=reference,
        runs=sum(missing.values()),
        tokens=_total(missing, tokens),
        training_s=_total(missing, times),
    )


def _total(missing: Mapping[str, int], each: Mapping[str, Any]) -> Any:
    return None if None in each.values() else sum(count * each[name] for name, count in missing.items())


def _seconds(snapshot: Snapshot, run: RunView) -> float | None:
    try:
        speed = median_speed(RunFolder(snapshot.path / run.run))
    except Damaged:  # an event before the last ones, so that the run is finished all the same
        return None
    tokens = _tokens(run)
    return tokens / speed if tokens and speed else None


def _tokens(run: RunView) -> int | None:
    return None if run.tokens_per_step is None else run.steps * run.tokens_per_step
