"""The models in order of result: a card each, or a row of a table where there are many of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.listing import MOST_CARDS, grouped, matches
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import ORDER, WORST_FIRST, RunView, ShownLoss, Snapshot
from addnorm.reporting.view import Listing, View
from addnorm.store import Damaged, State

_SPARK_POINTS = 48
_STATE = "state"
"""Group by it; the others are the settings that differ."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One model: all runs of a variant."""

    place: int
    """In the study's order, from 0; part of the card's name."""
    order: int
    """In the order of the results, from 0."""
    variant: str
    subtitle: str
    is_reference: bool
    state: State
    """`running` if any run is, else the worst state of a run; `finished` only if all are."""
    reason: str | None
    """Reason why a run has failed, diverged or is blocked: the first of the worst state."""
    counts: tuple[tuple[State, int], ...]
    seeds_counted: int
    seeds: int
    """Of the first batch, which alone is ranked."""
    loss: float | None
    """Mean over the counted runs, of the seeds that all models have; before any has finished, the newest loss of the most
    advanced run."""
    shared: int | None
    """Number of those seeds where the models' seeds differ, 0 if there is none; None where they are the same."""
    reach: float | None
    """Half of the mean's interval; None where the seeds differ."""
    is_final: bool
    """True if `loss` is a mean over finished runs."""
    accuracy: float | None
    perplexity: float | None
    step: int
    """Steps done by all runs."""
    steps: int
    tokens: tuple[int, int] | None
    """Tokens that all runs have seen, and will see; None for a plan that does not tell."""
    wall_s: float | None
    """Time of its ended runs, one after the other."""
    left_s: float | None
    """Longest time left of its running runs."""
    ranks: tuple[int, int] | None
    spark: str
    """Points of the most advanced run's loss in a box of 100 by 28; empty with fewer than two points."""

    @property
    def text(self) -> str:
        """Text that a search looks at."""
        return f"{self.variant} {self.subtitle} {self.state}"


_SORTS: Mapping[str, Callable[[Card], Any]] = {
    "study": lambda card: card.place,
    "name": lambda card: card.variant.casefold(),
    "accuracy": lambda card: (card.accuracy is None, -(card.accuracy or 0.0)),
    "cost": lambda card: (card.wall_s is None, -(card.wall_s or 0.0)),
}
"""Orders that a visitor may choose, besides that of the results."""


class CardsSection(Section):
    """The models; each is updated by itself."""

    order = 35
    pages = ("overview",)
    sources = frozenset({"study", "table"})
    in_report = None
    follows = frozenset({"runs", "ranking"})
    shows_results = True
    part = "card"

    def __init__(self) -> None:
        self._sparks: dict[tuple[str, int], str] = {}
        """Curve by run and step."""

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        all_cards = cards(snapshot, {name: self._spark(snapshot, name) for name in snapshot.variants})
        groups = arranged(all_cards, snapshot, view.listing)
        return {
            "groups": groups,
            "shown": sum(len(items) for _, items in groups),
            "count": len(all_cards),
            "are_rows": len(all_cards) > MOST_CARDS,
            "sorts": tuple(_SORTS),
            "group_paths": (_STATE, *snapshot.differing),
            "listing": view.listing,
            "hidden": len(view.listing.hidden & set(range(len(all_cards)))),
        }

    def part_values(self, snapshot: Snapshot, view: View, place: int) -> Mapping[str, Any]:
        name = snapshot.variants[place]
        are_rows = len(snapshot.variants) > MOST_CARDS
        return {"card": card(snapshot, name, self._spark(snapshot, name)), "are_rows": are_rows}

    def _spark(self, snapshot: Snapshot, variant: str) -> str:
        run = furthest(snapshot.of(variant))
        if run is None or run.step == 0:
            return ""
        key = (run.run, run.step)
        if key not in self._sparks:
            try:
                points = snapshot.curves.thinned(run.run, "train.loss", first=0, last=run.steps, parts=_SPARK_POINTS)
            except Damaged:  # the run is shown as blocked, with this reason
                points = []
            for old in [known for known in self._sparks if known[0] == run.run]:
                del self._sparks[old]
            self._sparks[key] = spark([step for step, _ in points], [value for _, value in points], run.steps)
        return self._sparks[key]


def cards(snapshot: Snapshot, sparks: Mapping[str, str] | None = None) -> list[Card]:
    """A card per model, in order of the results."""
    return [card(snapshot, name, (sparks or {}).get(name, "")) for name in snapshot.by_result]


def arranged(all_cards: Sequence[Card], snapshot: Snapshot, listing: Listing) -> list[tuple[str, list[Card]]]:
    """The cards that a visitor asked for, by group; one group without a name unless some were asked for."""
    if len(all_cards) <= MOST_CARDS:
        return [("", list(all_cards))]
    hidden = listing.hidden
    shown = [each for each in all_cards if each.place not in hidden and matches(listing.query, each.text)]
    if listing.sort in _SORTS:
        shown.sort(key=_SORTS[listing.sort])
    if listing.group == _STATE:
        return [(str(key), items) for key, items in grouped(shown, lambda each: each.state)]
    values = snapshot.differing.get(listing.group)
    if values is None:
        return [("", shown)]
    return [(str(key), items) for key, items in grouped(shown, lambda each: values[each.variant])]


def furthest(runs: Sequence[RunView]) -> RunView | None:
    """The run with the most steps done; the first of several."""
    return max(runs, key=lambda run: run.step, default=None)


def card(snapshot: Snapshot, variant: str, spark: str = "") -> Card:
    """One model's card."""
    runs = snapshot.of(variant)
    row = snapshot.rank_of(variant)
    states = Counter(run.state for run in runs)
    state = next(state for state in WORST_FIRST if states[state])
    ahead = furthest(runs)
    own = snapshot.losses.get(variant)
    counted = own is not None
    shown: ShownLoss | RunView | None = own if counted else ahead
    walls = [run.wall_s for run in runs if run.wall_s is not None]
    return Card(
        place=snapshot.variants.index(variant),
        order=snapshot.by_result.index(variant),
        variant=variant,
        subtitle=snapshot.subtitle(variant),
        is_reference=variant in snapshot.references,
        state=state,
        reason=_reason(runs),
        counts=tuple((state, states[state]) for state in ORDER if states[state]),
        seeds_counted=row.seeds if row is not None else 0,
        seeds=len(snapshot.first_batch(variant)),
        loss=own.loss if own is not None else ahead.loss if ahead else None,
        shared=own.shared if own is not None else None,
        reach=None
        if row is None or row.interval is None or own is None or own.shared is not None
        else (row.interval[1] - row.interval[0]) / 2,
        is_final=counted,
        accuracy=shown.accuracy if shown else None,
        perplexity=shown.perplexity if shown else None,
        step=sum(run.step for run in runs),
        steps=sum(run.steps for run in runs),
        tokens=_tokens(snapshot, runs),
        wall_s=sum(walls) if walls else None,
        left_s=max((run.left_s for run in runs if run.left_s is not None), default=None),
        ranks=row.rank_interval if row is not None else None,
        spark=spark,
    )


def spark(steps: Sequence[int], values: Sequence[float], steps_in_all: int) -> str:
    """A small line's points in a box of 100 by 28: the whole run's width; in height, what follows the first tenth, so that a
    steep start does not flatten all the rest."""
    if len(values) < 2 or steps_in_all <= 0:
        return ""
    low, high = min(values), max(values[len(values) // 10 :])
    height = high - low or 1.0
    return " ".join(
        f"{100 * step / steps_in_all:.1f},{26 - 24 * min(1.0, (value - low) / height):.1f}"
        for step, value in zip(steps, values, strict=True)
    )


def _reason(runs: Sequence[RunView]) -> str | None:
    for state in ("failed", "diverged", "blocked"):
        for run in runs:
            if run.state == state and run.reason:
                return run.reason
    return None


def _tokens(snapshot: Snapshot, runs: Sequence[RunView]) -> tuple[int, int] | None:
    seen = snapshot.tokens_of(runs)
    if seen is None:
        return None
    return seen, sum(run.steps * (run.tokens_per_step or 0) for run in runs)
