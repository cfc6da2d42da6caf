"""Every variant against every reference: verdicts, the number of seeds that would decide, and the figure of differences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import finished, new_figure, tidy
from addnorm.reporting.formats.listing import MOST_CARDS, grouped, matches
from addnorm.reporting.formats.numbers import interval, signed
from addnorm.reporting.formats.table import Column, Table
from addnorm.reporting.formats.tiers import TierWords, tier_words
from addnorm.reporting.section import Figure, Rows, Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import Listing, View
from addnorm.statistics import Comparison, Ranking
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import Phrases, Sentence, phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_MARKERS = {"better": "<", "worse": ">", "equivalent": "s", "undecided": "o"}
_MILLI = 1000.0
_GROUPS = ("reference", "better", "equivalent", "undecided", "none", "worse", "failed")
"""Groups of a long table, in their order."""
_FEW_NOTES = 2
"""Notes on a ranking that are not folded."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison, losses in thousandths of a nat."""

    reference: str
    verdict: str
    """A verdict, or `none`."""
    difference: float | None
    interval: tuple[float, float] | None
    seeds: int
    seeds_lower: int
    """Shared seeds at which the variant has the lower loss."""
    seeds_needed: int | None
    needed_for: str | None
    reason: Sentence | None
    accuracy_disagrees: bool
    box: tuple[float, float, float] | None
    """Ends of the interval and the difference on the shared scale from 0 to 100; None without an interval."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant."""

    variant: str
    is_reference: bool
    same_as: str | None
    ranks: tuple[int, int] | None
    seeds: int
    mean: float | None
    reach: float | None
    accuracy: float | None
    tier: TierWords
    cells: tuple[Cell | None, ...]
    """One per reference; None against itself."""

    def in_group(self, against: int) -> str:
        """The verdict against the reference in that place; `reference` for itself."""
        cell = self.cells[against]
        return "reference" if cell is None else cell.verdict


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The whole table."""

    rows: tuple[Row, ...]
    references: tuple[str, ...]
    scale: float
    """Distance from zero to 0 and to 100 of the boxes, in thousandths of a nat; an arrow is drawn for what lies beyond."""
    margin: float
    """In thousandths of a nat."""

    def groups(self, listing: Listing, hidden: Collection[str] = ()) -> list[tuple[str, list[Row]]]:
        """The rows by verdict against one reference, best verdict first; one group without a name for a small study.

        Args:
            listing: `query` leaves rows out; `group` names the reference, the first unless given.
            hidden: variants that are left out of a long table.
        """
        if len(self.rows) <= MOST_CARDS or not self.references:
            return [("", list(self.rows))]
        against = self.references.index(listing.group) if listing.group in self.references else 0
        shown = [row for row in self.rows if row.variant not in hidden and matches(listing.query, row.variant)]
        found = grouped(shown, lambda row: row.in_group(against))
        return sorted(((str(key), rows) for key, rows in found), key=lambda group: _GROUPS.index(group[0]))


def verdicts(ranking: Ranking) -> Verdicts:
    """The table of a ranking, in its order."""
    ends = [abs(e) for row in ranking.variants for c in row.versus.values() if c.interval for e in c.interval]
    # The 90th percentile: one diverging variant must not compress all other intervals onto the zero line.
    scale = (
        max(1000 * sorted(ends)[int(0.9 * (len(ends) - 1))], 2000 * ranking.margin) if ends else 2000 * ranking.margin
    )
    rows = tuple(
        Row(
            variant=row.variant,
            is_reference=row.variant in ranking.references,
            same_as=row.same_as,
            ranks=row.rank_interval,
            seeds=row.seeds,
            mean=row.mean,
            reach=(row.interval[1] - row.interval[0]) / 2 if row.interval else None,
            accuracy=row.accuracy,
            tier=tier_words(row.tier, ranking),
            cells=tuple(
                _cell(reference, row.versus[reference], scale) if reference in row.versus else None
                for reference in ranking.references
            ),
        )
        for row in ranking.variants
    )
    return Verdicts(
        rows=rows,
        references=ranking.references,
        scale=scale,
        margin=1000 * ranking.margin,
    )


def _cell(reference: str, comparison: Comparison, scale: float) -> Cell:
    interval = comparison.interval
    thousandths = None if interval is None else (1000 * interval[0], 1000 * interval[1])
    difference = None if comparison.difference is None else 1000 * comparison.difference
    box = None
    if thousandths is not None and difference is not None:
        box = tuple(max(0.0, min(100.0, 50 + 50 * end / scale)) for end in (*thousandths, difference))
    return Cell(
        reference=reference,
        verdict=comparison.verdict or "none",
        difference=difference,
        interval=thousandths,
        seeds=comparison.seeds,
        seeds_lower=comparison.seeds_lower,
        seeds_needed=None if comparison.seeds_needed is None else min(comparison.seeds_needed, RESOLVABLE_SEEDS),
        needed_for="more" if (comparison.seeds_needed or 0) > RESOLVABLE_SEEDS else comparison.seeds_needed_for,
        reason=comparison.reason,
        accuracy_disagrees=comparison.accuracy_agrees is False and comparison.verdict in ("better", "worse"),
        box=box if box is None else (box[0], box[1], box[2]),
    )


def difference_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per variant and reference."""
    ranking = snapshot.ranking
    if ranking is None:
        return []
    return [
        {
            "variant": row.variant,
            "reference": reference,
            "difference": comparison.difference,
            "interval": comparison.interval,
            "verdict": comparison.verdict or "none",
            "verdict_word": t(f"verdict.{comparison.verdict or 'none'}"),
            "margin": ranking.margin,
        }
        for row in ranking.variants
        for reference, comparison in row.versus.items()
    ]


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "MatplotlibFigure":
    """The figure of a ranking's comparisons, a panel per reference.

    Args:
        rows: one per variant and reference: `variant`, `reference`, `difference`, `interval` (nats per token; None where
            there is no test), `verdict`, `verdict_word`, `margin`.
        language: of the labels.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("a figure of differences needs at least one comparison, got none.")
    references = list(dict.fromkeys(row["reference"] for row in rows))
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    drawn = new_figure(2.0 + 3.2 * len(references), 1.4 + 0.32 * len(variants))
    panels = drawn.subplots(1, len(references), sharey=True, squeeze=False)[0]
    heights = {name: len(variants) - place for place, name in enumerate(variants)}
    for axes, reference in zip(panels, references, strict=True):
        of_reference = [row for row in rows if row["reference"] == reference]
        margin = _MILLI * of_reference[0]["margin"]
        axes.axvspan(-margin, margin, color="0.92", zorder=0, label=phrases(language)("plot.margin"))
        axes.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        for row in of_reference:
            y = heights[row["variant"]]
            if row["difference"] is None:
                continue
            if row["interval"] is not None:
                axes.plot([_MILLI * end for end in row["interval"]], [y, y], color="black", linewidth=1.3)
            decided = row["verdict"] in ("better", "worse", "equivalent")
            axes.plot(
                [_MILLI * row["difference"]],
                [y],
                marker=_MARKERS.get(row["verdict"], "x"),
                color="black",
                markerfacecolor="black" if decided else "white",
                markersize=6,
            )
        axes.set_yticks(list(heights.values()), list(heights))
        axes.set_ylim(0.4, len(variants) + 0.6)
        tidy(axes, title=phrases(language)("plot.versus", name=reference), grid="x")
    words = {row["verdict"]: row["verdict_word"] for row in rows if row["verdict"] in _MARKERS}
    handles = [panels[0].patches[0]]
    names = [phrases(language)("plot.margin")]
    for verdict, word in words.items():
        decided = verdict != "undecided"
        handles += panels[0].plot(
            [],
            [],
            marker=_MARKERS[verdict],
            color="black",
            markerfacecolor="black" if decided else "white",
            linestyle="",
        )
        names.append(word)
    panels[len(panels) // 2].set_xlabel(phrases(language)("plot.difference"), fontsize=9)
    drawn.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=8)
    return finished(drawn)


def _figure_table(rows: Rows, t: Phrases) -> Table:
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("reference", t("common.reference"), side="l"),
        Column("verdict_word", t("scalars.verdict"), side="l"),
        Column("difference", t("figures.difference"), lambda difference: signed(difference, 5)),
        Column("interval", t("figures.interval"), lambda ends: interval(ends, 5)),
    )
    return Table(columns, rows)


class VerdictsSection(Section):
    """The table of verdicts."""

    order = 40
    pages = ("ranking",)
    follows = frozenset({"ranking"})
    shows_results = True
    figures = (
        Figure(
            name="differences",
            caption="Differences to each reference with simultaneous intervals.",
            rows=difference_rows,
            numbers=("difference",),
            draw=figure,
            table=_figure_table,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        ranking = snapshot.ranking
        places = {name: place for place, name in enumerate(snapshot.variants)}
        left_out = view.listing.hidden
        hidden = {name for name, place in places.items() if place in left_out}
        found = verdicts(ranking) if ranking is not None else None
        return {
            "verdicts": found,
            "groups": found.groups(view.listing, hidden) if found is not None else [],
            "places": places,
            "hidden": len(hidden),
            "ranking": ranking,
            "no_ranking": snapshot.no_ranking,
            "listing": view.listing,
            "is_long": len(snapshot.variants) > MOST_CARDS,
            "folds_notes": ranking is not None and len(ranking.warnings) > _FEW_NOTES and view.is_live,
        }
