"""One card per model: state, loss, accuracy, perplexity, steps, rank, and a small curve of the training loss."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.drawing.chart import spark
from addnorm.reporting.run_states import ORDER, WORST_FIRST
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking, VariantRank
from addnorm.store import Damaged, Index, State

_SPARK_POINTS = 48


@dataclass(frozen=True, kw_only=True)
class Card:
    """One model: all runs of a variant."""

    place: int
    """In the study's order, from 0: what the card is called in the page."""
    variant: str
    is_reference: bool
    state: State
    """Running if any run is; else the worst that befell one; finished only if all are."""
    counts: tuple[tuple[State, int], ...]
    seeds_counted: int
    seeds: int
    loss: float | None
    """Mean over the counted runs; before there are any, the newest loss of its furthest run."""
    reach: float | None
    """Half of the mean's interval."""
    is_final: bool
    """Whether `loss` is a mean over finished runs."""
    accuracy: float | None
    perplexity: float | None
    step: int
    """Steps done by all runs."""
    steps: int
    epochs: tuple[float, float] | None
    """How often the furthest run has read the training text, and how often it will have; None where its size is not known."""
    left_s: float | None
    """Longest time left of its running runs."""
    waiting: int
    """Runs that are still to be started or gone on with."""
    ranks: tuple[int, int] | None
    spark: str
    """Points of the furthest run's loss, for a line in a box of 100 by 28; empty without two points."""
    seeds_states: tuple[tuple[int, State], ...]


class CardsSection(Section):
    """The models' cards; each is updated by itself."""

    order = 20
    pages = ("overview",)
    follows = frozenset({"runs", "ranking"})
    shows_results = True
    part = "card"

    def __init__(self) -> None:
        self._sparks: dict[tuple[str, int], str] = {}
        """Curve by run and step."""

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"cards": cards(snapshot, {name: self._spark(snapshot, name) for name in snapshot.variants})}

    def part_values(self, snapshot: Snapshot, view: View, place: int) -> Mapping[str, Any]:
        name = snapshot.variants[place]
        return {"card": cards(snapshot, {name: self._spark(snapshot, name)})[place]}

    def _spark(self, snapshot: Snapshot, variant: str) -> str:
        run = furthest(snapshot.of(variant))
        if run is None or run.step == 0:
            return ""
        key = (run.run, run.step)
        if key not in self._sparks:
            try:
                points = Index(snapshot.path).thinned(
                    run.run, "train.loss", first=0, last=run.steps, parts=_SPARK_POINTS
                )
            except Damaged:  # the run is shown as blocked, with this very reason
                points = []
            for old in [known for known in self._sparks if known[0] == run.run]:
                del self._sparks[old]
            self._sparks[key] = spark([step for step, _ in points], [value for _, value in points], run.steps)
        return self._sparks[key]


def cards(snapshot: Snapshot, sparks: dict[str, str] | None = None) -> list[Card]:
    """A card per model, in the study's order."""
    ranked = {row.variant: row for row in snapshot.ranking.variants} if isinstance(snapshot.ranking, Ranking) else {}
    return [
        _card(place, name, snapshot, ranked.get(name), (sparks or {}).get(name, ""))
        for place, name in enumerate(snapshot.variants)
    ]


def furthest(runs: Sequence[RunView]) -> RunView | None:
    """The run with the most steps done, of those the first."""
    return max(runs, key=lambda run: run.step, default=None)


def _card(place: int, variant: str, snapshot: Snapshot, row: VariantRank | None, spark: str) -> Card:
    runs = snapshot.of(variant)
    states = Counter(run.state for run in runs)
    ahead = furthest(runs)
    counted = row is not None and row.mean is not None
    shown: VariantRank | RunView | None = row if counted else ahead
    left = [run.left_s for run in runs if run.left_s is not None]
    return Card(
        place=place,
        variant=variant,
        is_reference=variant in snapshot.references,
        state=next(state for state in WORST_FIRST if states[state]),
        counts=tuple((state, states[state]) for state in ORDER if states[state]),
        seeds_counted=row.seeds if row is not None else 0,
        seeds=len(runs),
        loss=row.mean if row is not None and counted else ahead.loss if ahead else None,
        reach=(row.interval[1] - row.interval[0]) / 2 if row is not None and row.interval else None,
        is_final=counted,
        accuracy=shown.accuracy if shown else None,
        perplexity=shown.perplexity if shown else None,
        step=sum(run.step for run in runs),
        steps=sum(run.steps for run in runs),
        epochs=_epochs(snapshot, ahead),
        left_s=max(left, default=None),
        waiting=states["queued"] + states["interrupted"] + states["blocked"],
        ranks=row.rank_interval if row is not None else None,
        spark=spark,
        seeds_states=tuple((run.seed, run.state) for run in runs),
    )


def _epochs(snapshot: Snapshot, run: RunView | None) -> tuple[float, float] | None:
    """Tokens seen over tokens of the training text, now and at the end."""
    text = snapshot.train_tokens
    if run is None or run.tokens_per_step is None or text is None:
        return None
    return run.step * run.tokens_per_step / text, run.steps * run.tokens_per_step / text
