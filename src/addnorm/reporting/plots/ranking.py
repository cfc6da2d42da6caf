"""Variants from best to worst: mean loss with its interval, every run, the reference lines, tiers and ranks left open."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.plots.style import finished, new_figure, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
    """The figure of a ranking.

    Args:
        rows: one per variant, best first: `variant`, `mean`, `interval`, `values` (losses of its runs), `tier`,
            `rank_interval`, `reference` (whether it is one), `line_apart` (whether its line can be told from every other
            reference's), `provisional`.
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
    said = f"{ranks[0]}" if ranks[0] == ranks[1] else f"{ranks[0]}–{ranks[1]}"
    return f"{said} · {row['tier']}"
