"""Source 001's two pictures per layer: the four terms against the distance, and the scores of models side by side.

Heads are averaged; bands are the least and the greatest of the heads' bands over samples. Lines differ in dashes, so that a
copy without colour can be read.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TERMS = {"qRk": "$q^T R k$", "aRk": "$a^T R k$", "qRb": "$q^T R b$", "aRb": "$a^T R b$"}
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MOST_LAYERS = 6


def figure(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """The figure of one model's terms, or of several models' side by side: a line of panels per layer, at most six layers,
    evenly chosen.

    Args:
        rows: `rows` of `addnorm inspect --terms --json`: one per model, layer and head.

    Raises:
        ValueError: there are no rows.
    """
    from matplotlib.figure import Figure

    if not rows:
        raise ValueError("a figure needs at least one row of score terms, got none.")
    labels = list(dict.fromkeys(row["label"] for row in rows))
    layers = _chosen(sorted({row["layer"] for row in rows}))
    drawn = Figure(figsize=(4.2 * (len(labels) + 1), 2.6 * len(layers)), layout="constrained")
    panels = drawn.subplots(len(layers), len(labels) + 1, squeeze=False)
    for line, layer in zip(panels, layers, strict=True):
        for index, label in enumerate(labels):
            mine = [row for row in rows if row["layer"] == layer and row["label"] == label]
            if not mine:
                continue
            for place, (term, name) in enumerate(_TERMS.items()):
                _curve(line[index], mine, term, name, place)
            _finish(line[index], f"{label}, layer {layer}", mine[0]["trained"])
            _curve(line[-1], mine, "sum", f"{label}", 2 * index)
            _curve(line[-1], mine, "qRk", f"{label}, first term", 2 * index + 1)
        _finish(line[-1], f"scores, layer {layer}", None)
    for axes in panels[0]:
        axes.legend(fontsize=7, frameon=False)
    return drawn


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
    colour = _COLOURS[place % len(_COLOURS)]
    axes.fill_between(distances, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.plot(distances, mean, label=name, color=colour, linestyle=_DASHES[place % len(_DASHES)], linewidth=1.2)


def _finish(axes: "Axes", title: str, trained: int | None) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("distance, tokens", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    if trained is not None:
        axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
