"""The first screen: totals over all runs, and one card per model."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.reporting.pages.snapshot import RunView, Snapshot
from addnorm.statistics import Ranking, VariantRank
from addnorm.store import State

ORDER: tuple[State, ...] = ("finished", "running", "queued", "interrupted", "blocked", "diverged", "failed")
"""States as totals and bars list them."""
_WORST_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "blocked", "interrupted", "queued", "finished")


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Runs by state."""

    runs: int
    models: int
    counts: tuple[tuple[State, int], ...]
    """Every state that totals always show, and any other that occurs."""
    done_share: float
    """Steps done over all steps, 0 to 1."""
    left_s: float | None
    """Time to the study's end at the running workers' present speed."""
    newest_time: float | None


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


def totals(snapshot: Snapshot) -> Totals:
    """Totals of all runs."""
    counted = Counter(run.state for run in snapshot.runs)
    always = ("finished", "running", "queued", "interrupted", "failed")
    steps = sum(run.steps for run in snapshot.runs)
    speeds = [run.steps_per_s for run in snapshot.runs if run.state == "running" and run.steps_per_s]
    to_do = sum(r.steps - r.step for r in snapshot.runs if r.state not in ("finished", "failed", "diverged"))
    return Totals(
        runs=len(snapshot.runs),
        models=len(snapshot.variants),
        counts=tuple((state, counted[state]) for state in ORDER if counted[state] or state in always),
        done_share=min(1.0, sum(run.step for run in snapshot.runs) / steps) if steps > 0 else 0.0,
        left_s=to_do / sum(speeds) if speeds else None,
        newest_time=snapshot.newest_time,
    )


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
        state=next(state for state in _WORST_FIRST if states[state]),
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
