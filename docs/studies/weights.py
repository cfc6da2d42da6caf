"""Learned weights of earlier layers as maps: a row per layer that reads, a column per layer that is read, means over seeds.

    python docs/studies/weights.py NAME VARIANT:WHAT …    maps of data/NAME.json to images/NAME-weights.svg

WHAT is that of the block `learned` of the reports' tables, such as v2m3:residual.mix. Each row is divided by its mean, so that
the colour says which layers count more than the others of their row, and the number what the weight is.
"""

import sys

import numpy as np
from matplotlib.figure import Figure
from tables import learned_means, save_figure, stored

MOST = 2.0
"""Doublings and halvings of the row's mean that have the full colour."""


def draw(name: str, wanted: list[tuple[str, str]]) -> None:
    data = stored(name)
    figure = Figure(figsize=(4.2 * len(wanted), 3.9), layout="constrained")
    panels = figure.subplots(1, len(wanted), squeeze=False)[0]
    image = None
    for axes, (variant, what) in zip(panels, wanted, strict=True):
        means = {place: mean for place, (mean, _) in learned_means(data, variant, what).items()}
        size = 1 + max(max(layer, source) for layer, source in means)
        matrix = np.full((size, size), np.nan)
        for (layer, source), mean in means.items():
            matrix[layer, source] = mean
        rows = [row for row in range(size) if not np.isnan(matrix[row]).all()]
        relative = np.full((size, size), np.nan)
        for row in rows:
            relative[row] = np.log2(np.maximum(matrix[row], 1e-9) / np.nanmean(matrix[row]))
        image = axes.imshow(np.ma.masked_invalid(relative), cmap="PuOr_r", vmin=-MOST, vmax=MOST)
        for (layer, source), mean in means.items():
            colour = "white" if abs(relative[layer, source]) > 0.7 * MOST else "black"
            axes.text(source, layer, f"{mean:.2f}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_title(f"{variant}, {data['label']}" if data.get("label") else variant, fontsize=10)
        axes.set_xlabel("layer that is read", fontsize=9)
        axes.set_xticks(range(size))
        axes.set_yticks(rows)
        axes.set_ylim(size - 0.5, -0.5)
    panels[0].set_ylabel("layer that reads", fontsize=9)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.8, ticks=[-2, -1, 0, 1, 2])
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    bar.set_label("weight / mean of its row", fontsize=9)
    save_figure(figure, f"{name}-weights")


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or any(":" not in pair for pair in arguments[1:]):
        raise SystemExit(__doc__)
    name, *wanted = arguments
    draw(name, [(variant, what) for variant, _, what in (each.partition(":") for each in wanted)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
