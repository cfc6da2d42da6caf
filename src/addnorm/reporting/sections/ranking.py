"""The ranking as a figure and as a table: plain text for a terminal, CSV for a spreadsheet, LaTeX for a paper.

Functions of the tables take the JSON of `addnorm rank --json`, not the objects behind it. Losses are in nats per token; in text
and LaTeX, differences are in thousandths of a nat, because that is their size. Other measures are in their own unit.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, key_below, name_rows, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.measured import (
    RankingFormats,
    comparison_text,
    is_unplanned,
    label_text,
    levels,
    missing_verdicts,
    tier_text,
)
from addnorm.reporting.formats.numbers import NONE
from addnorm.reporting.formats.ranking_latex import latex
from addnorm.reporting.formats.table import Column, ResultTable, again, against, at, dashed
from addnorm.reporting.formats.text_table import filled, warned
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.statistics import Ranking
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import Phrases, phrases, point_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


def ranking_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per ranked variant, best first; none without a ranking."""
    return [] if snapshot.ranking is None else figure_rows(snapshot.ranking, t)


def figure_rows(ranking: Ranking, t: Phrases) -> Rows:
    """Rows of the figure of a ranking, best first."""
    apart = {line[0] for line in ranking.lines if len(line) == 1}
    return [
        {
            "variant": row.variant,
            "mean": row.mean,
            "interval": row.interval,
            "values": [value.loss for value in row.values if value.counted and value.loss is not None],
            "tier": tier_text(row.tier, t),
            "rank_interval": row.rank_interval,
            "reference": row.variant in ranking.references,
            "line_apart": row.variant in apart,
            "provisional": ranking.provisional,
            "title": None if ranking.measure.in_nats else RankingFormats.of_measure(ranking.measure, t).title,
        }
        for row in ranking.variants
    ]


@figure_of("variant of a ranking")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of a ranking.

    Args:
        rows: one per variant, best first: `variant`, `mean`, `interval`, `values` (losses of its runs), `tier`,
            `rank_interval`, `reference` (true for a reference), `line_apart` (true if its line can be distinguished from every
            other reference's), `provisional`, `title` (of the axis; None for a loss in nats).
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
    name_rows(axes, heights, [row["variant"] for row in rows])
    axes.set_ylim(0.4, len(rows) + 0.6)
    right = axes.secondary_yaxis("right")
    name_rows(right, heights, [_ranks_and_tier(row) for row in rows])
    right.tick_params(length=0, labelsize=8)
    right.spines["right"].set_visible(False)
    title = t("plot.provisional") if any(row["provisional"] for row in rows) else ""
    tidy(
        axes,
        title=title,
        across=next((row["title"] for row in rows if row.get("title")), None) or t("plot.loss"),
        grid="x",
    )
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
    title = rows[0].get("title") if rows else None
    level = levels(in_nats=title is None)
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("tier", t("ladder.tier"), side="l"),
        Column("rank_interval", t("common.rank"), dashed(lambda ends: "–".join(map(str, dict.fromkeys(ends))), "–")),
        Column("values", t("common.seeds"), lambda values: str(len(values))),
        Column("mean", title or t("common.loss"), level),
        Column("interval", t("figures.interval"), dashed(lambda ends: f"[{level(ends[0])}, {level(ends[1])}]", NONE)),
    )
    return ResultTable(columns, rows)


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    if snapshot.ranking is None:
        return {}
    content = snapshot.ranking.to_json()
    of_others = {
        f"{re.sub(r'[^A-Za-z0-9._-]+', '-', other['metric'])}-{name}": text
        for other in content.get("others", ())
        for name, text in latex(other).items()
    }
    return {"ranking.csv": csv(content), **latex(content), **of_others}


def means(ranking: Mapping[str, Any], t: Phrases | None = None) -> ResultTable:
    """The table of means, a row per variant in the ranking's order: ranks left open, runs, mean, interval, accuracy, tier."""
    t = phrases("en") if t is None else t
    shown = RankingFormats.of(ranking, t)
    metric = t("head.loss") if ranking["metric"] == "loss" else ranking["metric"]
    accuracy = Column("accuracy", t("head.accuracy_percent"), dashed(lambda share: f"{100 * share:.2f}"))
    columns = (
        Column("rank_interval", t("head.ranks"), dashed(lambda ends: "-".join(map(str, dict.fromkeys(ends))))),
        Column("variant", t("head.variant"), value=_name, side="l"),
        Column("seeds", t("head.seeds")),
        Column("mean", metric, dashed(shown.level)),
        Column("interval", "±", dashed(lambda ends: shown.level((ends[1] - ends[0]) / 2))),
        *([accuracy] if any(row["accuracy"] is not None for row in ranking["variants"]) else []),
        Column("tier", t("head.tier"), lambda tier: _tier(tier, t), side="l"),
    )
    return ResultTable(columns, ranking["variants"])


def differences(ranking: Mapping[str, Any], t: Phrases | None = None) -> ResultTable:
    """The table of comparisons, a column per reference."""
    t = phrases("en") if t is None else t
    shown, mark = RankingFormats.of(ranking, t), "*" if is_unplanned(ranking) else ""
    name_column = Column("variant", t("head.variant"), value=_name, side="l")
    if "pairs" in ranking:  # a column per reference would be empty in most lines
        versus = Column("reference", t("common.reference"), point_name, side="l")
        cell = Column("comparison", "", dashed(lambda comparison: _cell(comparison, shown, mark, t)), "l")
        rows = [
            {**entry, "reference": name, "comparison": comparison}
            for entry in ranking["variants"]
            for name, comparison in entry["versus"].items()
        ]
        return ResultTable([name_column, versus, cell], rows)
    columns = (
        Column(
            f"vs {name}",
            t("head.versus", name=point_name(name)),
            dashed(lambda comparison: _cell(comparison, shown, mark, t)),
            "l",
            at("versus", name),
        )
        for name in ranking["references"]
    )
    return ResultTable([name_column, *columns], ranking["variants"])


def text(ranking: Mapping[str, Any], width: int = 100, t: Phrases | None = None) -> str:
    """The ranking for a terminal, without colour.

    Args:
        ranking: the JSON of a ranking.
        width: columns; comparisons that do not fit side by side go below each other.
        t: phrases of the language; English if not given.
    """
    t = phrases("en") if t is None else t
    shown = RankingFormats.of(ranking, t)
    title = t("text.ranking", title=shown.title, margin=ranking["margin"])
    if is_unplanned(ranking):
        title += t("text.unplanned")
    if ranking["provisional"]:
        title += t("text.provisional")
    parts = [filled(title, width), means(ranking, t).text(width, names=2)]
    parts += _values(ranking["variants"], shown, width, t)
    if ranking["references"]:
        percent = f"{100 * ranking['confidence']:g}"
        heading = [t("text.differences", unit=shown.small_unit, percent=percent)]
        compared = differences(ranking, t)
        cells = [cell for line in compared.body for cell in line[1:]]
        if any(re.search(r" \d+/\d+ ", cell) for cell in cells):
            heading.append(t(f"text.on_seeds_{shown.better}"))
        many = t("text.seeds_needed", seeds=f">{RESOLVABLE_SEEDS}")
        if any(f" {many}" in cell for cell in cells):
            heading.append(t("text.not_resolvable", needed=many))
        if ranking.get("second"):
            heading.append(t("text.second_batch", seeds=t("joint.comma").join(map(str, ranking["second"]))))
        if any(f"({t('text.tuning_seeds')} " in cell for cell in cells):
            heading.append(t("text.on_tuning_seeds"))
        blocks = compared.blocks(width)
        parts += [filled(t("text.heading", text=t("joint.semicolon").join(heading)), width), *blocks]
    notes = [None] * len(ranking["warnings"]) if t.language == "en" else ranking["notes"]
    warnings = [t.note(note) or warning for warning, note in zip(ranking["warnings"], notes, strict=True)]
    parts += warned([*warnings, *missing_verdicts(ranking, t)], width)
    return "\n\n".join(parts) + "\n"


def csv(ranking: Mapping[str, Any]) -> str:
    """One line per variant (and metric, if there are several), numbers in full precision, an empty cell for None."""
    rankings = (ranking, *ranking.get("others", ()))
    columns = (
        *([Column("metric")] if len(rankings) > 1 else []),
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
    rows = [{**row, "metric": each["metric"]} for each in rankings for row in each["variants"]]
    return ResultTable(columns, rows).csv()


def _name(entry: Mapping[str, Any]) -> str:
    name = point_name(entry["variant"])
    return name if entry["same_as"] is None else f"{name} (= {point_name(entry['same_as'])})"


def _tier(tier: Mapping[str, Any], t: Phrases) -> str:
    """The label; with "?" where the tier excludes some gap and more than one is left."""
    label: str = tier["label"]
    shown = label_text(label, t)
    return f"{shown} ?" if label.startswith(("above", "between", "below")) and not tier["firm"] else shown


def _values(entries: Sequence[Mapping[str, Any]], shown: RankingFormats, width: int, t: Phrases) -> list[str]:
    """Every run's loss, a column per seed; nothing where no variant has more than one run."""
    if all(len(entry.get("values", ())) < 2 for entry in entries):
        return []
    rows = [
        {value["seed"]: value for value in entry.get("values", ())} | {"variant": entry["variant"]} for entry in entries
    ]
    seeds = sorted({value["seed"] for entry in entries for value in entry.get("values", ())})
    columns = (
        Column(f"seed {seed}", t("head.seed", seed=seed), dashed(lambda value: _value(value, shown, t)), value=at(seed))
        for seed in seeds
    )
    table = ResultTable([Column("variant", t("head.variant"), point_name, side="l"), *columns], rows)
    marks = {cell[len(cell.rstrip("=*")) :] for line in table.body for cell in line[1:]}
    heading = [t("text.per_seed", name=shown.name), *(t(key) for mark, key in _MARKS.items() if mark in marks)]
    return [filled(t("text.heading", text=t("joint.semicolon").join(heading)), width), table.text(width)]


_MARKS = {"=": "text.mark_copy", "*": "text.mark_unplanned", "**": "text.mark_after_look"}


def _value(value: Mapping[str, Any], shown: RankingFormats, t: Phrases) -> str:
    if value["loss"] is None:
        return t(f"state.{value['state']}")
    return shown.level(value["loss"]) + (
        "=" if not value["counted"] else "**" if value["after_look"] else "" if value["planned"] else "*"
    )


def _cell(comparison: Mapping[str, Any], shown: RankingFormats, mark: str, t: Phrases) -> str:
    word = t(f"verdict.{comparison['verdict'] or 'none'}") + (mark if comparison["verdict"] else "")
    cell = comparison_text(comparison, shown.difference, word=word, counted=shown.seeds_better, t=t)
    needed = comparison["seeds_needed"]
    if needed is None:
        return cell
    many = f">{RESOLVABLE_SEEDS}" if needed > RESOLVABLE_SEEDS else needed
    return f"{cell} {t('text.seeds_needed', seeds=many)}"


class RankingSection(Section):
    """The ranking's figure and tables, of reports. Pages show it as ladder, verdicts and values."""

    order = 35
    sources = frozenset({"study", "table"})
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
