"""Differences against size: a panel per variant with every seed, the means, and the change per doubling."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import finished, grid_of_panels, new_figure, tidy
from addnorm.reporting.formats.measured import RankingFormats
from addnorm.reporting.formats.trend_table import change
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4


def figure(trend: Mapping[str, Any], language: str = "en") -> "Figure":
    """The figure of a trend, against its first reference.

    Args:
        trend: the JSON of `addnorm trend --json`.
        language: of the labels.

    Raises:
        ValueError: no variant has a trend.
    """
    t = phrases(language)
    reference, shown = trend["references"][0], RankingFormats.of(trend, t)
    factor = shown.factor
    rows = [(row["variant"], row["versus"][reference]) for row in trend["variants"] if row["variant"] != reference]
    if not rows:
        raise ValueError("a figure needs at least one variant with a trend, got none.")
    columns = min(_COLUMNS, len(rows))
    drawn = new_figure(3.1 * columns, 0.5 + 2.2 * -(-len(rows) // columns))
    panels = grid_of_panels(drawn, len(rows), columns, share=True)
    sizes = [size["parameters"] for size in trend["sizes"]]
    for place, (axes, (variant, versus)) in enumerate(zip(panels, rows, strict=True)):
        points = [
            (size, factor * each["difference"])
            for size, at in zip(sizes, versus["differences"], strict=True)
            for each in at
        ]
        axes.axhline(0, color="0.55", linewidth=0.9, zorder=0)
        axes.plot([x for x, _ in points], [y for _, y in points], "_", color="0.55", markersize=9, zorder=1)
        means = [(size, factor * mean) for size, mean in zip(sizes, versus["means"], strict=True) if mean is not None]
        axes.plot(
            [x for x, _ in means], [y for _, y in means], "o-", color="black", markersize=5, linewidth=1.2, zorder=2
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.minorticks_off()
        axes.margins(x=0.15)
        tidy(axes, title=f"{variant}\n{change(versus, shown, phrases('en'))}")
        axes.title.set_fontsize(9)
        axes.tick_params(labelbottom=place + columns >= len(rows))  # the lowest of its column
    drawn.supxlabel(t("plot.size"), fontsize=9)
    drawn.supylabel(t("plot.difference_from", name=reference, unit=shown.small_unit), fontsize=9)
    return finished(drawn)
