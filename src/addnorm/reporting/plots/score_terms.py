"""Su's (2023) two pictures per layer: the four terms against the distance, and the scores of models side by side.

Heads are averaged; bands are the least and the greatest of the heads' bands over samples. Lines differ in dashes, so that a
copy without colour can be read.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.plots.style import finished, new_figure, style, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TERMS = {"qRk": "$q^T R k$", "aRk": "$a^T R k$", "qRb": "$q^T R b$", "aRb": "$a^T R b$"}
MOST_LAYERS = 6


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
    """The figure of one model's terms, or of several models' side by side: a line of panels per layer, at most six layers,
    evenly chosen.

    Args:
        rows: `rows` of `addnorm inspect --terms --json`: one per model, layer and head.
        language: of the texts.

    Raises:
        ValueError: there are no rows.
        UnknownName: no such language.
    """
    if not rows:
        raise ValueError("a figure needs at least one row of score terms, got none.")
    models = list(dict.fromkeys(row["label"] for row in rows))
    layers = _chosen(sorted({row["layer"] for row in rows}))
    drawn = new_figure(4.2 * (len(models) + 1), 2.6 * len(layers))
    panels = drawn.subplots(len(layers), len(models) + 1, squeeze=False)
    across = phrases(language)("plot.distance")
    for line, layer in zip(panels, layers, strict=True):
        for index, model in enumerate(models):
            mine = [row for row in rows if row["layer"] == layer and row["label"] == model]
            if not mine:
                continue
            for place, (term, name) in enumerate(_TERMS.items()):
                _curve(line[index], mine, term, name, place)
            tidy(
                line[index], title=phrases(language)("plot.terms_of_layer", name=model, layer=str(layer)), across=across
            )
            _curve(line[-1], mine, "sum", model, 2 * index)
            _curve(line[-1], mine, "qRk", phrases(language)("plot.first_term", name=model), 2 * index + 1)
            for axes in (line[index], line[-1]):
                _mark(axes, mine[0]["trained"])
        tidy(line[-1], title=phrases(language)("plot.scores_of_layer", layer=str(layer)), across=across)
    for axes in panels[0]:
        axes.legend(fontsize=7, frameon=False, handlelength=3.2)
    return finished(drawn)


def _chosen(layers: Sequence[int]) -> list[int]:
    if len(layers) <= MOST_LAYERS:
        return list(layers)
    return [layers[round(step * (len(layers) - 1) / (MOST_LAYERS - 1))] for step in range(MOST_LAYERS)]


def _curve(axes: "Axes", rows: Sequence[Mapping[str, Any]], term: str, name: str, place: int) -> None:
    distances = rows[0]["distances"]
    curves = {kind: [row["terms"][term][kind] for row in rows] for kind in ("mean", "low", "high")}
    mean = [sum(values) / len(values) for values in zip(*curves["mean"], strict=True)]
    low = [min(values) for values in zip(*curves["low"], strict=True)]
    high = [max(values) for values in zip(*curves["high"], strict=True)]
    look = {name: value for name, value in style(place).items() if name != "marker"}
    axes.fill_between(distances, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes.plot(distances, mean, label=name, linewidth=1.2, **look)


def _mark(axes: "Axes", trained: int | None) -> None:
    """The level of no score, and the train length where it is known."""
    axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    if trained is not None:
        axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)
