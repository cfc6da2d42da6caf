"""Learned scalars over depth: what they started at, what every seed ended at, and what weight decay alone would leave."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import finished, legend_below, new_figure, tidy
from addnorm.reporting.formats.listing import grouped
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACROSS = 3


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
    """The figure of learned scalars, a panel per variant and parameter.

    Args:
        rows: one per entry: `variant`, `parameter`, `layer` (0-based, or None), `init`, `decay_only`, `finals` (a value
            per seed).
        language: of the labels.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("a figure of scalars needs at least one entry, got none.")
    groups = grouped(rows, lambda row: (row["variant"], row["parameter"]))
    across = min(_ACROSS, len(groups))
    down = -(-len(groups) // across)
    drawn = new_figure(0.6 + 3.6 * across, 0.8 + 2.5 * down)
    panels = drawn.subplots(down, across, squeeze=False).flatten()
    for axes, ((variant, parameter), entries) in zip(panels, groups, strict=False):
        places = range(len(entries))
        axes.step(
            [place - 0.5 for place in (*places, len(entries))],
            [*(entry["decay_only"] for entry in entries), entries[-1]["decay_only"]],
            where="post",
            color="black",
            linestyle=(0, (4, 2)),
            linewidth=1.1,
            label=phrases(language)("plot.decay_only"),
        )
        axes.plot(
            places,
            [entry["init"] for entry in entries],
            linestyle="",
            marker="_",
            markersize=9,
            color="0.5",
            label=phrases(language)("plot.init"),
        )
        points = [(place, value) for place, entry in enumerate(entries) for value in entry["finals"]]
        axes.plot(
            [place for place, _ in points],
            [value for _, value in points],
            linestyle="",
            marker="o",
            markersize=4,
            color="#0072b2",
            markeredgecolor="black",
            markeredgewidth=0.4,
            label=phrases(language)("plot.final"),
        )
        firsts = [place for place in places if place == 0 or entries[place]["layer"] != entries[place - 1]["layer"]]
        for place in firsts[1:]:
            axes.axvline(place - 0.5, color="0.85", linewidth=0.6, zorder=0)
        layered = entries[0]["layer"] is not None
        if layered:
            axes.set_xticks(firsts, [str(entries[place]["layer"]) for place in firsts])
        else:
            axes.locator_params(axis="x", integer=True)
        below = phrases(language)("plot.entry_by_layer" if layered else "plot.entry")
        tidy(axes, title=f"{variant}  {parameter}", across=below)
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    legend_below(drawn, panels[0])
    return finished(drawn)
