"""What each variant costs: parameters, FLOPs, speed, memory and time, side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.plots.style import finished, new_figure, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"parameters": 1e6, "flops_per_token": 1e6, "tokens_per_s": 1.0, "peak_bytes": 1e9, "wall_s": 1.0}
"""What one unit of each axis is."""


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
    """The figure of costs, a panel per cost; a cost that no variant has a number for is left out.

    Args:
        rows: one per variant: `variant`, and any of `parameters`, `flops_per_token`, `tokens_per_s`, `peak_bytes`, `wall_s`
            (None where not known).
        language: of the labels.

    Raises:
        ValueError: there are no rows, or no number in them.
    """
    shown = [name for name in UNITS if any(row.get(name) is not None for row in rows)]
    if not shown:
        raise ValueError("a figure of costs needs at least one number, got none.")
    drawn = new_figure(1.6 + 2.1 * len(shown), 1.1 + 0.3 * len(rows))
    panels = drawn.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    heights = range(len(rows), 0, -1)
    for axes, name in zip(panels, shown, strict=True):
        for row, y in zip(rows, heights, strict=True):
            if row.get(name) is not None:
                value = row[name] / UNITS[name]
                axes.barh(y, value, height=0.55, color="0.75", edgecolor="black", linewidth=0.6)
                axes.annotate(_short(value), (value, y), (3, 0), textcoords="offset points", va="center", fontsize=7)
        axes.set_yticks(list(heights), [row["variant"] for row in rows])
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=3)
        tidy(axes, across=phrases(language)(f"plot.{name}"), grid="x")
    return finished(drawn)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
