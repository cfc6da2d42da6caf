"""Every variant against every reference: verdicts, the number of seeds that would decide, and the figure of differences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, key_below, name_rows, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.listing import MOST_CARDS, grouped, matches
from addnorm.reporting.formats.measured import RankingFormats, in_small_unit
from addnorm.reporting.formats.numbers import NONE, signed
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import ShownLoss, Snapshot
from addnorm.reporting.view import Listing, View
from addnorm.statistics import Ranking, VariantComparison, VariantRank
from addnorm.statistics.measure import LOSS
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import Phrases, phrases, point_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_MARKERS = {"better": "<", "worse": ">", "equivalent": "s", "undecided": "o"}
_PANEL_LETTERS = 44
"""Letters of 9 points that are as wide as a panel of the figure."""
_GROUPS = ("reference", "better", "equivalent", "undecided", "none", "worse", "failed")
"""Groups of a long table, in their order."""
_FEW_NOTES = 2
"""Notes on a ranking that are not folded."""


VerdictRow = Mapping[str, Any]
"""A variant of the ranking for the template: the fields of `VariantRank`, with `is_reference`, `reach` (half of the mean's
interval), `shared` as in `ShownLoss`, `tier` as `Tier`, and `cells`, one per reference, None against itself. A cell has
the fields of `VariantComparison`, losses in thousandths of a nat, with `box`, `needed_for` and `accuracy_disagrees`."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """The whole table."""

    ranking: Ranking
    forms: RankingFormats
    rows: tuple[VerdictRow, ...]
    references: tuple[str, ...]
    """A column each; none where a study compares pairs of its own, each with the name of its reference."""
    columns: int
    scale: float
    """Distance from zero to 0 and to 100 of the boxes, in thousandths of a nat; an arrow is drawn for what lies beyond."""
    margin: float
    """In thousandths of a nat."""

    def groups(self, listing: Listing, hidden: Collection[str] = ()) -> list[tuple[str, list[VerdictRow]]]:
        """The rows by verdict against one reference, best verdict first; one group without a name for a small study.

        Args:
            listing: `query` leaves rows out; `group` names the reference, the first unless given.
            hidden: variants that are left out of a long table.
        """
        if len(self.rows) <= MOST_CARDS or not self.references:
            return [("", list(self.rows))]
        against = self.references.index(listing.group) if listing.group in self.references else 0

        def group(row: VerdictRow) -> str:
            cell = row["cells"][against]
            return "reference" if cell is None else str(cell["verdict"])

        shown = [row for row in self.rows if row["variant"] not in hidden and matches(listing.query, row["variant"])]
        return sorted(grouped(shown, group), key=lambda pair: _GROUPS.index(pair[0]))


def verdicts(ranking: Ranking, losses: Mapping[str, ShownLoss], forms: RankingFormats | None = None) -> Verdicts:
    """The table of a ranking, in its order.

    Args:
        ranking: what is shown.
        losses: of its variants, over the same seeds for all.
        forms: of its numbers; those of English text unless given.
    """
    forms = forms or RankingFormats.of_measure(ranking.measure, phrases("en"))
    ends = [abs(e) for row in ranking.variants for c in row.versus.values() if c.interval for e in c.interval]
    # One scale for all rows and references, so that bars can be compared by eye; it is never smaller than twice the
    # margin, or a study without differences would show noise as wide bars.
    # The 90th percentile: one diverging variant must not compress all other intervals onto the zero line.
    factor = forms.factor
    margin = factor * ranking.margin
    scale = max(factor * sorted(ends)[int(0.9 * (len(ends) - 1))], 2 * margin) if ends else 2 * margin
    rows = tuple(
        {
            **vars(row),
            "is_reference": row.variant in ranking.references,
            **_loss(row, losses.get(row.variant)),
            "tier": row.tier,
            "cells": [
                {**_cell(row.versus[reference], scale, forms), "of": reference} if reference in row.versus else None
                for reference in (ranking.references if ranking.pairs is None else row.versus)
            ],
        }
        for row in ranking.variants
    )
    references = ranking.references if ranking.pairs is None else ()
    columns = max((len(row["cells"]) for row in rows), default=0)
    for row in rows:
        row["cells"].extend([None] * (columns - len(row["cells"])))
    return Verdicts(
        ranking=ranking, forms=forms, rows=rows, references=references, columns=columns, scale=scale, margin=margin
    )


def _loss(row: VariantRank, shown: ShownLoss | None) -> Mapping[str, float | int | None]:
    if shown is None or shown.shared is None:
        reach = (row.interval[1] - row.interval[0]) / 2 if row.interval else None
        return {"mean": row.mean, "reach": reach, "shared": None}
    return {"mean": shown.loss, "reach": None, "shared": shown.shared, "accuracy": shown.accuracy}


def _cell(comparison: VariantComparison, scale: float, forms: RankingFormats) -> VerdictRow:
    cell = in_small_unit(vars(comparison), forms.factor)
    box = None
    if cell["interval"] is not None and cell["difference"] is not None:
        ends = (*cell["interval"], cell["difference"])
        box = [max(0.0, min(100.0, 50 + 50 * end / scale)) for end in ends]
    needed = comparison.seeds_needed
    return {
        **cell,
        "seeds_lower": comparison.seeds_lower,
        "seeds_higher": sum(difference > 0 for difference in comparison.by_seed.values()),
        "seeds_needed": None if needed is None else min(needed, RESOLVABLE_SEEDS),
        # The estimate of seeds is itself uncertain; beyond what anybody would run, the page says only that it is more.
        "needed_for": "more" if (needed or 0) > RESOLVABLE_SEEDS else comparison.seeds_needed_for,
        "accuracy_disagrees": comparison.accuracy_agrees is False and comparison.verdict in ("better", "worse"),
        "again": None
        if comparison.again is None
        else {**_beside(comparison.again.by_seed, forms), "state": comparison.again.state},
        "tuning": _beside(comparison.tuning, forms) if comparison.tuning else None,
        # Ends of the interval and the difference on the shared scale from 0 to 100.
        "box": box,
    }


def _beside(by_seed: Mapping[int, float], forms: RankingFormats) -> dict[str, Any]:
    """Seeds, those at which the loss is lower, and the mean difference in the unit of the table."""
    values = list(by_seed.values())
    return {
        "seeds": len(values),
        "lower": sum(value < 0 for value in values),
        "difference": forms.factor * sum(values) / len(values) if values else None,
    }


def difference_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per variant and reference."""
    ranking = snapshot.ranking
    if ranking is None:
        return []
    return [
        {
            "variant": row.variant,
            "reference": reference,
            "paired": ranking.pairs is not None,
            "difference": comparison.difference,
            "interval": comparison.interval,
            "verdict": comparison.verdict or "none",
            "verdict_word": t(f"verdict.{comparison.verdict or 'none'}"),
            "margin": ranking.margin,
            "forms": RankingFormats.of_measure(ranking.measure, t),
        }
        for row in ranking.variants
        for reference, comparison in row.versus.items()
    ]


@figure_of("comparison")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of a ranking's comparisons, a panel per reference.

    Args:
        rows: one per variant and reference: `variant`, `reference`, `difference`, `interval` (nats per token; None where
            there is no test), `verdict`, `verdict_word`, `margin`, `forms` (`RankingFormats`); `paired` if each variant has
            references of its own: one panel then, a line per pair.
        language: of the labels.
    """

    def sign(verdict: str) -> dict[str, Any]:
        decided = verdict in ("better", "worse", "equivalent")
        look = {"color": "black", "markerfacecolor": "black" if decided else "white"}
        return {"marker": _MARKERS.get(verdict, "x"), **look}

    def label(row: Mapping[str, Any]) -> str:
        name = point_name(row["variant"])
        return f"{name} – {point_name(row['reference'])}" if row.get("paired") else name

    references = grouped(rows, lambda row: "" if row.get("paired") else str(row["reference"]))
    variants = list(dict.fromkeys(map(label, rows)))
    forms = rows[0].get("forms") or RankingFormats.of_measure(LOSS, t)
    factor = forms.factor
    drawn = new_figure(2.0 + 3.2 * len(references), 1.4 + 0.32 * len(variants))
    panels = drawn.subplots(1, len(references), sharey=True, squeeze=False)[0]
    heights = {name: len(variants) - place for place, name in enumerate(variants)}
    for axes, (reference, of_reference) in zip(panels, references, strict=True):
        margin = factor * of_reference[0]["margin"]
        axes.axvspan(-margin, margin, color="0.92", zorder=0, label=t("plot.margin"))
        axes.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        for row in of_reference:
            y = heights[label(row)]
            if row["difference"] is None:
                continue
            if row["interval"] is not None:
                axes.plot([factor * end for end in row["interval"]], [y, y], color="black", linewidth=1.3)
            axes.plot([factor * row["difference"]], [y], markersize=6, **sign(row["verdict"]))
        name_rows(axes, heights.values(), heights)
        axes.set_ylim(0.4, len(variants) + 0.6)
        tidy(axes, title=t("plot.versus", name=point_name(reference)) if reference else "", grid="x")
    words = {row["verdict"]: row["verdict_word"] for row in rows if row["verdict"] in _MARKERS}
    signs = [panels[0].plot([], [], linestyle="", **sign(verdict))[0] for verdict in words]
    # It is wider than one panel, and would be cut off at the figure's edge.
    panels[len(panels) // 2].set_xlabel(filled(_across(forms, t), _PANEL_LETTERS), fontsize=9)
    key_below(drawn, [panels[0].patches[0], *signs], [t("plot.margin"), *words.values()])
    return drawn


def _across(forms: RankingFormats, t: Phrases) -> str:
    if forms.in_nats:
        return t("plot.difference")
    return t(f"plot.difference_{forms.better}", name=forms.name, unit=forms.small_unit)


def _difference_heading(rows: Rows, t: Phrases) -> str:
    forms: RankingFormats | None = rows[0]["forms"] if rows else None
    return (
        t("figures.difference")
        if forms is None or forms.in_nats
        else f"{t('figures.difference_plain')}, {forms.small_unit}"
    )


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    forms: RankingFormats | None = rows[0]["forms"] if rows else None

    def difference(value: float | None) -> str:  # in the unit itself: five decimals of nats
        return signed(value, 5) if forms is None or forms.in_nats else forms.shown_difference(value)

    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("reference", t("common.reference"), side="l"),
        Column("verdict_word", t("scalars.verdict"), side="l"),
        Column("difference", _difference_heading(rows, t), difference),
        Column("interval", t("figures.interval"), dashed(lambda ends: f"[{', '.join(map(difference, ends))}]", NONE)),
    )
    return ResultTable(columns, rows)


class VerdictsSection(Section):
    """The table of verdicts."""

    order = 40
    pages = ("ranking",)
    sources = frozenset({"study", "table"})
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
        t = phrases(view.language)
        tables = [
            verdicts(each, snapshot.losses if each is ranking else {}, RankingFormats.of_measure(each.measure, t))
            for each in (() if ranking is None else (ranking, *ranking.others))
        ]
        return {
            "tables": [(table, table.groups(view.listing, hidden)) for table in tables],
            # A study has accuracies, be they still to come; a table has none beside its column.
            "has_accuracy": snapshot.is_study
            or any(row.accuracy is not None for row in (() if ranking is None else ranking.variants)),
            "together": ranking is not None and ranking.together,
            "places": places,
            "hidden": len(hidden),
            "no_ranking": snapshot.no_ranking,
            "listing": view.listing,
            "is_long": len(snapshot.variants) > MOST_CARDS,
            "folds_notes": ranking is not None and len(ranking.warnings) > _FEW_NOTES and view.is_live,
        }
