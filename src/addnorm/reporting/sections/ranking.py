"""The ranking as a figure and as a table: plain text for a terminal, CSV for a spreadsheet, LaTeX for a paper.

Functions of the tables take the JSON of `addnorm rank --json`, not the objects behind it. Losses are in nats per token; in text
and LaTeX, differences are in thousandths of a nat, because that is their size. Other measures are in their own unit.
"""

import csv as csv_format
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import finished, new_figure, tidy
from addnorm.reporting.formats.measured import Shown, missing_verdicts
from addnorm.reporting.formats.numbers import fixed, interval
from addnorm.reporting.formats.ranking_latex import latex
from addnorm.reporting.formats.text_table import aligned
from addnorm.reporting.formats.tiers import tier_text, tier_words
from addnorm.reporting.section import Figure, FigureTable, Rows, Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import Phrases, phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

NONE = "-"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant, ready to print."""

    variant: str
    ranks: str
    """Ranks left open, such as `2` or `2-5`."""
    seeds: str
    loss: str
    """Mean loss in nats per token."""
    reach: str
    """Half of the mean's interval."""
    accuracy: str
    """Per cent."""
    tier: str
    versus: tuple[str, ...]
    """One cell per reference."""


def ranking_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per ranked variant, best first; none without a ranking."""
    return [] if snapshot.ranking is None else figure_rows(snapshot.ranking, t)


def figure_rows(ranking: Ranking, t: Phrases) -> Rows:
    """Rows of the figure of a ranking, best first."""
    apart = {line[0] for line in ranking.lines if len(line) == 1}
    found = []
    for row in ranking.variants:
        found.append(
            {
                "variant": row.variant,
                "mean": row.mean,
                "interval": row.interval,
                "values": [value.loss for value in row.values if value.counted and value.loss is not None],
                "tier": tier_text(tier_words(row.tier, ranking), t),
                "rank_interval": row.rank_interval,
                "reference": row.variant in ranking.references,
                "line_apart": row.variant in apart,
                "provisional": ranking.provisional,
            }
        )
    return found


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "MatplotlibFigure":
    """The figure of a ranking.

    Args:
        rows: one per variant, best first: `variant`, `mean`, `interval`, `values` (losses of its runs), `tier`,
            `rank_interval`, `reference` (true for a reference), `line_apart` (true if its line can be distinguished from every
            other reference's), `provisional`.
        language: of the labels.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("a ranking's figure needs at least one variant, got none.")
    drawn = new_figure(9.5, 1.5 + 0.34 * len(rows))
    axes = drawn.subplots()
    heights = range(len(rows), 0, -1)
    for row, y in zip(rows, heights, strict=True):
        if row["mean"] is None:
            continue
        if row["reference"]:
            dashes = "-" if row["line_apart"] else (0, (4, 3))
            axes.axvline(row["mean"], color="0.55", linewidth=0.9, linestyle=dashes, zorder=0)
        axes.plot(row["values"], [y] * len(row["values"]), "|", color="0.55", markersize=9, zorder=1)
        if row["interval"] is not None:
            axes.plot(row["interval"], [y, y], color="black", linewidth=1.6, solid_capstyle="butt", zorder=2)
        axes.plot(
            [row["mean"]],
            [y],
            marker="D" if row["reference"] else "o",
            color="black",
            markerfacecolor="white" if row["reference"] else "black",
            markersize=6,
            linestyle="",
            zorder=3,
        )
    axes.set_yticks(list(heights), [row["variant"] for row in rows])
    axes.set_ylim(0.4, len(rows) + 0.6)
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(list(heights), [_beside(row) for row in rows])
    beside.tick_params(length=0, labelsize=8)
    beside.spines["right"].set_visible(False)
    title = phrases(language)("plot.provisional") if any(row["provisional"] for row in rows) else ""
    tidy(axes, title=title, across=phrases(language)("plot.loss"), grid="x")
    key = [
        axes.plot([], [], marker="o", color="black", linewidth=1.6)[0],
        axes.plot([], [], "|", color="0.55", markersize=9)[0],
        axes.plot([], [], marker="D", color="0.55", markerfacecolor="white", markeredgecolor="black")[0],
    ]
    names = [phrases(language)(f"plot.{name}") for name in ("mean", "seed_value", "reference")]
    drawn.legend(key, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return finished(drawn)


def _beside(row: Mapping[str, Any]) -> str:
    ranks = row["rank_interval"]
    if ranks is None:
        return str(row["tier"])
    text = f"{ranks[0]}" if ranks[0] == ranks[1] else f"{ranks[0]}–{ranks[1]}"
    return f"{text} · {row['tier']}"


def _figure_table(rows: Rows, t: Phrases) -> FigureTable:
    header = ("common.model", "ladder.tier", "common.rank", "common.seeds", "common.loss", "figures.interval")
    return FigureTable(
        header=tuple(map(t, header)),
        names=2,
        lines=[
            (
                row["variant"],
                row["tier"],
                "–" if row["rank_interval"] is None else "–".join(map(str, dict.fromkeys(row["rank_interval"]))),
                str(len(row["values"])),
                fixed(row["mean"], 4),
                interval(row["interval"], 4),
            )
            for row in rows
        ],
    )


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    if snapshot.ranking is None:
        return {}
    content = snapshot.ranking.to_json()
    return {"ranking.csv": csv(content), **latex(content)}


def rows(ranking: Mapping[str, Any]) -> list[Row]:
    """Cells of the table, in the ranking's order."""
    shown = Shown.of(ranking)
    return [_row(entry, ranking["references"], shown) for entry in ranking["variants"]]


def text(ranking: Mapping[str, Any], width: int = 100) -> str:
    """The ranking for a terminal, without colour.

    Args:
        ranking: the JSON of a ranking.
        width: columns; comparisons that do not fit side by side go below each other.
    """
    found = rows(ranking)
    shown = Shown.of(ranking)
    title = f"{shown.title}; ± is for each mean alone. Margin ±{ranking['margin']:g}."
    if ranking["provisional"]:
        title += " PROVISIONAL: runs have yet to end."
    head = ["ranks", "variant", "seeds", ranking["metric"], "±", "acc. %", "tier"]
    body = [[r.ranks, r.variant, r.seeds, r.loss, r.reach, r.accuracy, r.tier] for r in found]
    parts = [textwrap.fill(title, width), aligned([head, *body], left={1, 6}, width=width, names=2)]
    parts += _values(ranking["variants"], shown, width)
    if ranking["references"]:
        percent = f"{100 * ranking['confidence']:g}"
        heading = f"Differences in {shown.small_unit}; all intervals together hold with {percent} % confidence"
        cells = [cell for row in found for cell in row.versus]
        if any(re.search(r" \d+/\d+ ", cell) for cell in cells):
            heading += f"; 4/5: {shown.better} on 4 of 5 seeds"
        if any(f" >{RESOLVABLE_SEEDS} seeds" in cell for cell in cells):
            heading += f"; >{RESOLVABLE_SEEDS} seeds: not resolvable at this budget"
        heading += ":"
        parts.append(textwrap.fill(heading, width))
        parts += _side_by_side(ranking["references"], found, width)
    warnings = [*ranking["warnings"], *missing_verdicts(ranking)]
    notes = [textwrap.fill(f"! {note}", width, subsequent_indent="  ") for note in warnings]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def csv(ranking: Mapping[str, Any]) -> str:
    """One line per variant, numbers in full precision, an empty cell for None."""
    fields = ("verdict", "difference", "low", "high", "seeds_needed")
    head = ["variant", "seeds", "mean", "low", "high", "accuracy", "tier", "firm", "best_rank", "worst_rank"]
    head += [f"{reference}:{field}" for reference in ranking["references"] for field in fields]
    out = io.StringIO()
    writer = csv_format.writer(out, lineterminator="\n")
    writer.writerow(head)
    for entry in ranking["variants"]:
        line = [entry["variant"], entry["seeds"], entry["mean"], *_two(entry["interval"]), entry["accuracy"]]
        line += [entry["tier"]["label"], entry["tier"]["firm"], *_two(entry["rank_interval"])]
        for reference in ranking["references"]:
            comparison = entry["versus"].get(reference)
            if comparison is None:
                line += [None] * len(fields)
            else:
                line += [comparison["verdict"], comparison["difference"], *_two(comparison["interval"])]
                line += [comparison["seeds_needed"]]
        writer.writerow(line)
    return out.getvalue()


def _row(entry: Mapping[str, Any], references: Sequence[str], shown: Shown) -> Row:
    interval = entry["interval"]
    name = entry["variant"] if entry["same_as"] is None else f"{entry['variant']} (= {entry['same_as']})"
    best = entry["rank_interval"]
    return Row(
        variant=name,
        ranks=NONE if best is None else str(best[0]) if best[0] == best[1] else f"{best[0]}-{best[1]}",
        seeds=str(entry["seeds"]),
        loss=NONE if entry["mean"] is None else shown.level(entry["mean"]),
        reach=NONE if interval is None else shown.level((interval[1] - interval[0]) / 2),
        accuracy=NONE if entry["accuracy"] is None else f"{100 * entry['accuracy']:.2f}",
        tier=entry["tier"]["label"] if entry["tier"]["firm"] or not _bounded(entry) else f"{entry['tier']['label']} ?",
        versus=tuple(_cell(entry["versus"].get(reference), shown) for reference in references),
    )


def _values(entries: Sequence[Mapping[str, Any]], shown: Shown, width: int) -> list[str]:
    """Every run's loss, a column per seed; nothing where no variant has more than one run."""
    if all(len(entry.get("values", ())) < 2 for entry in entries):
        return []
    seeds = sorted({value["seed"] for entry in entries for value in entry.get("values", ())})
    body = []
    for entry in entries:
        cells = {value["seed"]: _value(value, shown) for value in entry.get("values", ())}
        body.append([entry["variant"], *(cells.get(seed, NONE) for seed in seeds)])
    cells_shown = [cell for line in body for cell in line[1:]]
    meanings = [
        meaning for mark, meaning in _MARKS.items() if any(cell.lstrip("0123456789.") == mark for cell in cells_shown)
    ]
    heading = textwrap.fill(f"{shown.name} per seed{''.join(f'; {meaning}' for meaning in meanings)}:", width)
    return [heading, aligned([["variant", *(f"seed {seed}" for seed in seeds)], *body], width=width)]


_MARKS = {
    "=": "= a copy of another run, counted once",
    "*": "* not in the first plan",
    "**": "** added after a look at results",
}


def _value(value: Mapping[str, Any], shown: Shown) -> str:
    if value["loss"] is None:
        return str(value["state"])
    return shown.level(value["loss"]) + (
        "=" if not value["counted"] else "**" if value["after_look"] else "" if value["planned"] else "*"
    )


def _bounded(entry: Mapping[str, Any]) -> bool:
    """True if the tier excludes some gap; "?" then means that more than one is left."""
    return str(entry["tier"]["label"]).startswith(("above", "between", "below"))


def _cell(comparison: Mapping[str, Any] | None, shown: Shown) -> str:
    if comparison is None:
        return NONE
    cell = comparison["verdict"] or "no verdict"
    if comparison["interval"] is not None and comparison.get("by_seed"):
        cell += f" {shown.seeds_better(comparison)}/{len(comparison['by_seed'])}"
    if comparison["difference"] is not None:
        cell += f" {shown.difference(comparison['difference'])}"
    if comparison["interval"] is not None:
        low, high = map(shown.difference, comparison["interval"])
        cell += f" [{low}, {high}]"
    if comparison["seeds_needed"] is not None:
        many = comparison["seeds_needed"] > RESOLVABLE_SEEDS
        cell += f" >{RESOLVABLE_SEEDS} seeds" if many else f" {comparison['seeds_needed']} seeds"
    return cell


def _side_by_side(references: Sequence[str], found: Sequence[Row], width: int) -> list[str]:
    """As many references beside each other as the width holds, the rest in further blocks."""
    name_width = max(len("variant"), *(len(row.variant) for row in found))
    blocks: list[list[int]] = [[]]
    used = name_width
    for index, reference in enumerate(references):
        needed = 2 + max(len(f"vs {reference}"), *(len(row.versus[index]) for row in found))
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = name_width
        blocks[-1].append(index)
        used += needed
    return [
        aligned(
            [
                ["variant", *(f"vs {references[i]}" for i in block)],
                *([row.variant, *(row.versus[i] for i in block)] for row in found),
            ],
            left=range(len(block) + 1),
        )
        for block in blocks
    ]


def _two(ends: Sequence[Any] | None) -> Sequence[Any]:
    return (None, None) if ends is None else ends


class RankingSection(Section):
    """The ranking's figure and tables, of reports. Pages show it as ladder, verdicts and values."""

    order = 35
    figures = (
        Figure(
            name="ranking",
            caption="Ranking: mean loss with its own interval, every run, reference lines; "
            "ranks left open and tier on the right.",
            rows=ranking_rows,
            numbers=("mean",),
            draw=figure,
            table=_figure_table,
            files=_files,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return snapshot.ranking is not None
