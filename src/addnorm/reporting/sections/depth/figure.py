"""Depth matrices of models whose weights are learned, as heat maps: after training, and what training changed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from addnorm.reporting.drawing.figure_style import figure_of, new_figure, tidy
from addnorm.reporting.sections.depth.matrices import has_plain_weights, learns
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 12
"""Models and rooms in one figure."""
_COLOURS = "PuOr_r"
"""Diverging, and distinguishable for colour-blind readers."""


@figure_of("model with depth matrices")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "Figure":
    """Draw the depth matrices, a row of two maps per model and room. Rooms whose weights are all 1 show shares.

    Args:
        rows: see `depth_rows`.
        t: phrases of the labels.
    """
    chosen = [row for row in rows if learns(row["room"]) or not has_plain_weights(row["room"])][:_MOST] or rows[:_MOST]
    drawn = new_figure(8.2, 0.5 + 2.9 * len(chosen))
    for panels, row in zip(drawn.subplots(len(chosen), 2, squeeze=False), chosen, strict=True):
        room = row["room"]
        name = "weights" if learns(room) or not has_plain_weights(room) else "shares"
        matrix = room.matrices[name]
        shown = ((matrix.end, name), (matrix.difference, f"{name}_change"))
        for axes, (values, key) in zip(panels, shown, strict=True):
            if values is None:
                axes.set_visible(False)
                continue
            most = float(np.abs(values).max()) or 1.0
            masked = np.ma.masked_equal(values, 0.0)
            image = axes.imshow(masked, cmap=_COLOURS, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
            bar = drawn.colorbar(image, ax=axes, shrink=0.9)
            bar.ax.tick_params(labelsize=7)
            tidy(
                axes, title=f"{row['variant']}  {room.kind}: {t(f'depth.{key}')}", across=t("depth.source"), grid="both"
            )
            axes.grid(visible=False)
            axes.set_ylabel(t("depth.read"), fontsize=9)
            for set_ticks, names in ((axes.set_xticks, room.sources), (axes.set_yticks, room.reads)):
                places = list(range(0, len(names), max(1, len(names) // 8)))
                set_ticks(places, [_short(names[place]) for place in places])
            axes.tick_params(axis="x", labelrotation=45)
    return drawn


def _short(name: str) -> str:
    return name.replace("feedforward", "ffn").replace("attention", "att")
