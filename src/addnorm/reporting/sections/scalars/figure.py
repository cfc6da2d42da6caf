"""Learned scalars over depth: what they started at, what every seed ended at, and what weight decay alone would leave."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, grid_of_panels, legend_below, new_figure, tidy
from addnorm.reporting.formats.listing import grouped
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACROSS = 3


@figure_of("learned scalar")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "Figure":
    """The figure of learned scalars, a panel per variant and parameter.

    Args:
        rows: one per entry: `variant`, `parameter`, `layer` (0-based, or None), `init`, `decay_only`, `finals` (a value
            per seed).
        t: phrases of the labels.
    """
    groups = grouped(rows, lambda row: (row["variant"], row["parameter"]))
    across = min(_ACROSS, len(groups))
    drawn = new_figure(0.6 + 3.6 * across, 0.8 + 2.5 * -(-len(groups) // across))
    panels = grid_of_panels(drawn, len(groups), across)
    for axes, ((variant, parameter), entries) in zip(panels, groups, strict=True):
        places = range(len(entries))
        axes.step(
            [place - 0.5 for place in (*places, len(entries))],
            [*(entry["decay_only"] for entry in entries), entries[-1]["decay_only"]],
            where="post",
            color="black",
            linestyle=(0, (4, 2)),
            linewidth=1.1,
            label=t("plot.decay_only"),
        )
        starts = [entry["init"] for entry in entries]
        axes.plot(places, starts, "_", markersize=9, color="0.5", label=t("plot.init"))
        points = [(place, value) for place, entry in enumerate(entries) for value in entry["finals"]]
        dots: dict[str, Any] = {"markersize": 4, "color": "#0072b2", "markeredgecolor": "black", "markeredgewidth": 0.4}
        axes.plot([place for place, _ in points], [value for _, value in points], "o", label=t("plot.final"), **dots)
        firsts = [place for place in places if place == 0 or entries[place]["layer"] != entries[place - 1]["layer"]]
        for place in firsts[1:]:
            axes.axvline(place - 0.5, color="0.85", linewidth=0.6, zorder=0)
        layered = entries[0]["layer"] is not None
        if layered:
            axes.set_xticks(firsts, [str(entries[place]["layer"]) for place in firsts])
        else:
            axes.locator_params(axis="x", integer=True)
        below = t("plot.entry_by_layer" if layered else "plot.entry")
        tidy(axes, title=f"{variant}  {parameter}", across=below)
    legend_below(drawn, panels[0])
    return drawn
