"""Every variant against every reference: difference in loss with the simultaneous interval, and the margin."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.plots.style import finished, new_figure, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {"better": "<", "worse": ">", "equivalent": "s", "undecided": "o"}
_MILLI = 1000.0


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
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
        mine = [row for row in rows if row["reference"] == reference]
        margin = _MILLI * mine[0]["margin"]
        axes.axvspan(-margin, margin, color="0.92", zorder=0, label=phrases(language)("plot.margin"))
        axes.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        for row in mine:
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
