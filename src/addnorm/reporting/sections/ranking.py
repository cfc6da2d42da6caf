"""The ranking as a figure and as a table: plain text for a terminal, CSV for a spreadsheet, LaTeX for a paper.

Functions of the tables take the JSON of `addnorm rank --json`, not the objects behind it. Losses are in nats per token; in text
and LaTeX, differences are in thousandths of a nat, because that is their size. Other measures are in their own unit.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, key_below, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.measured import RankingFormats, comparison_text, is_unplanned, missing_verdicts
from addnorm.reporting.formats.numbers import fixed, interval
from addnorm.reporting.formats.ranking_latex import latex
from addnorm.reporting.formats.table import Column, ResultTable, again, against, at, dashed
from addnorm.reporting.formats.text_table import warned
from addnorm.reporting.formats.tiers import tier_text, tier_words
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


def ranking_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per ranked variant, best first; none without a ranking."""
    return [] if snapshot.ranking is None else figure_rows(snapshot.ranking, t)


def figure_rows(ranking: Ranking, t: Phrases) -> Rows:
    """Rows of the figure of a ranking, best first."""
    apart = {line[0] for line in ranking.lines if len(line) == 1}
    rows = []
    for row in ranking.variants:
        rows.append(
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
    return rows


@figure_of("variant of a ranking")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of a ranking.

    Args:
        rows: one per variant, best first: `variant`, `mean`, `interval`, `values` (losses of its runs), `tier`,
            `rank_interval`, `reference` (true for a reference), `line_apart` (true if its line can be distinguished from every
            other reference's), `provisional`.
        language: of the labels.
    """
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
    right = axes.secondary_yaxis("right")
    right.set_yticks(list(heights), [_ranks_and_tier(row) for row in rows])
    right.tick_params(length=0, labelsize=8)
    right.spines["right"].set_visible(False)
    title = t("plot.provisional") if any(row["provisional"] for row in rows) else ""
    tidy(axes, title=title, across=t("plot.loss"), grid="x")
    key = [
        axes.plot([], [], marker="o", color="black", linewidth=1.6)[0],
        axes.plot([], [], "|", color="0.55", markersize=9)[0],
        axes.plot([], [], marker="D", color="0.55", markerfacecolor="white", markeredgecolor="black")[0],
    ]
    key_below(drawn, key, [t(f"plot.{name}") for name in ("mean", "seed_value", "reference")])
    return drawn


def _ranks_and_tier(row: Mapping[str, Any]) -> str:
    ranks = row["rank_interval"]
    if ranks is None:
        return str(row["tier"])
    text = f"{ranks[0]}" if ranks[0] == ranks[1] else f"{ranks[0]}–{ranks[1]}"
    return f"{text} · {row['tier']}"


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("tier", t("ladder.tier"), side="l"),
        Column("rank_interval", t("common.rank"), dashed(lambda ends: "–".join(map(str, dict.fromkeys(ends))), "–")),
        Column("values", t("common.seeds"), lambda values: str(len(values))),
        Column("mean", t("common.loss"), lambda mean: fixed(mean, 4)),
        Column("interval", t("figures.interval"), lambda ends: interval(ends, 4)),
    )
    return ResultTable(columns, rows)


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    if snapshot.ranking is None:
        return {}
    content = snapshot.ranking.to_json()
    return {"ranking.csv": csv(content), **latex(content)}


def means(ranking: Mapping[str, Any]) -> ResultTable:
    """The table of means, a row per variant in the ranking's order: ranks left open, runs, mean, interval, accuracy, tier."""
    shown = RankingFormats.of(ranking)
    columns = (
        Column("rank_interval", "ranks", dashed(lambda ends: "-".join(map(str, dict.fromkeys(ends))))),
        Column("variant", value=_name, side="l"),
        Column("seeds"),
        Column("mean", ranking["metric"], dashed(shown.level)),
        Column("interval", "±", dashed(lambda ends: shown.level((ends[1] - ends[0]) / 2))),
        Column("accuracy", "acc. %", dashed(lambda share: f"{100 * share:.2f}")),
        Column("tier", form=_tier, side="l"),
    )
    return ResultTable(columns, ranking["variants"])


def differences(ranking: Mapping[str, Any]) -> ResultTable:
    """The table of comparisons, a column per reference."""
    shown, mark = RankingFormats.of(ranking), "*" if is_unplanned(ranking) else ""
    columns = (
        Column(
            f"vs {name}", form=dashed(lambda compared: _cell(compared, shown, mark)), side="l", value=at("versus", name)
        )
        for name in ranking["references"]
    )
    return ResultTable([Column("variant", value=_name, side="l"), *columns], ranking["variants"])


def text(ranking: Mapping[str, Any], width: int = 100) -> str:
    """The ranking for a terminal, without colour.

    Args:
        ranking: the JSON of a ranking.
        width: columns; comparisons that do not fit side by side go below each other.
    """
    shown = RankingFormats.of(ranking)
    title = f"{shown.title}; ± is for each mean alone. Margin ±{ranking['margin']:g}."
    if is_unplanned(ranking):
        title += " NOT AS PLANNED: verdicts marked * are of another family than the planned one."
    if ranking["provisional"]:
        title += " PROVISIONAL: runs have yet to end."
    parts = [textwrap.fill(title, width), means(ranking).text(width, names=2)]
    parts += _values(ranking["variants"], shown, width)
    if ranking["references"]:
        percent = f"{100 * ranking['confidence']:g}"
        heading = f"Differences in {shown.small_unit}; all intervals together hold with {percent} % confidence"
        compared = differences(ranking)
        cells = [cell for line in compared.body for cell in line[1:]]
        if any(re.search(r" \d+/\d+ ", cell) for cell in cells):
            heading += f"; 4/5: {shown.better} on 4 of 5 seeds"
        if any(f" >{RESOLVABLE_SEEDS} seeds" in cell for cell in cells):
            heading += f"; >{RESOLVABLE_SEEDS} seeds: not resolvable at this budget"
        if ranking.get("second"):
            heading += f"; again: on the second batch, seeds {', '.join(map(str, ranking['second']))}"
        if any("(tuning " in cell for cell in cells):
            heading += "; tuning: on the seeds that chose the points"
        parts += [textwrap.fill(f"{heading}:", width), *compared.blocks(width)]
    parts += warned([*ranking["warnings"], *missing_verdicts(ranking)], width)
    return "\n\n".join(parts) + "\n"


def csv(ranking: Mapping[str, Any]) -> str:
    """One line per variant, numbers in full precision, an empty cell for None."""
    columns = (
        *map(Column, ("variant", "seeds", "mean")),
        *(Column(name, value=at("interval", place)) for place, name in enumerate(("low", "high"))),
        Column("accuracy"),
        Column("tier", value=at("tier", "label")),
        Column("firm", value=at("tier", "firm")),
        *(Column(name, value=at("rank_interval", place)) for place, name in enumerate(("best_rank", "worst_rank"))),
        *(column for reference in ranking["references"] for column in against(reference)),
        *(column for reference in ranking["references"] if ranking.get("second") for column in again(reference)),
        *([Column("unplanned", value=lambda _: " ".join(ranking["unplanned"]))] if ranking.get("unplanned") else []),
    )
    return ResultTable(columns, ranking["variants"]).csv()


def _name(entry: Mapping[str, Any]) -> str:
    name: str = entry["variant"]
    return name if entry["same_as"] is None else f"{name} (= {entry['same_as']})"


def _tier(tier: Mapping[str, Any]) -> str:
    """The label; with "?" where the tier excludes some gap and more than one is left."""
    label: str = tier["label"]
    return f"{label} ?" if label.startswith(("above", "between", "below")) and not tier["firm"] else label


def _values(entries: Sequence[Mapping[str, Any]], shown: RankingFormats, width: int) -> list[str]:
    """Every run's loss, a column per seed; nothing where no variant has more than one run."""
    if all(len(entry.get("values", ())) < 2 for entry in entries):
        return []
    rows = [
        {value["seed"]: value for value in entry.get("values", ())} | {"variant": entry["variant"]} for entry in entries
    ]
    seeds = sorted({value["seed"] for entry in entries for value in entry.get("values", ())})
    columns = (
        Column(f"seed {seed}", form=dashed(lambda value: _value(value, shown)), value=at(seed)) for seed in seeds
    )
    table = ResultTable([Column("variant", side="l"), *columns], rows)
    marks = {cell.lstrip("0123456789.") for line in table.body for cell in line[1:]}
    meanings = "".join(f"; {meaning}" for mark, meaning in _MARKS.items() if mark in marks)
    return [textwrap.fill(f"{shown.name} per seed{meanings}:", width), table.text(width)]


_MARKS = {
    "=": "= a copy of another run, counted once",
    "*": "* not in the first plan",
    "**": "** added after a look at results",
}


def _value(value: Mapping[str, Any], shown: RankingFormats) -> str:
    if value["loss"] is None:
        return str(value["state"])
    return shown.level(value["loss"]) + (
        "=" if not value["counted"] else "**" if value["after_look"] else "" if value["planned"] else "*"
    )


def _cell(comparison: Mapping[str, Any], shown: RankingFormats, mark: str) -> str:
    # Pairs without any shared seed have no list of seeds to count in.
    better = shown.seeds_better(comparison) if comparison.get("by_seed") else None
    word = f"{comparison['verdict']}{mark}" if comparison["verdict"] else None
    cell = comparison_text(comparison, shown.difference, word=word, better=better)
    needed = comparison["seeds_needed"]
    if needed is None:
        return cell
    return f"{cell} >{RESOLVABLE_SEEDS} seeds" if needed > RESOLVABLE_SEEDS else f"{cell} {needed} seeds"


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
