"""Each layer's gradient, stream and attention in studies' runs, from what `addnorm inspect DIR` left in their folders.

    python docs/studies/layers.py NAME DIR …                         a table to data/NAME.json
    python docs/studies/layers.py NAME DIR … --figure gradient:start gradient:end
                                                                     and a panel for each to images/NAME.svg
    python docs/studies/layers.py NAME DIR … --shares VARIANT        what part of each layer's scores comes from which
                                                                     layer, a table to data/NAME.json

Folders of one study's slices are seeds of one model; models of different depths have rows of their own, and the figure shows
the deepest. A panel is a measure (gradient, rms, entropy, exit_loss) and a time (start, end).
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from tables import save_figure, write_table

from addnorm.insight.flow import INSIGHT
from addnorm.store import StudyFolder

COLUMNS = [
    "variant",
    "layers",
    "at",
    "gradient, first layer",
    "middle",
    "last layer",
    "last / first",
    "stream, first layer",
    "last layer",
    "one-hot rows, last layer",
    "similarity of patterns",
]
LABELS = {
    "gradient": "norm of the layer's gradient",
    "rms": "root mean square of the stream",
    "entropy": "entropy of the attention in nats",
    "exit_loss": "loss if read off here, in nats",
}
LOGARITHMIC = {"gradient", "rms"}
TIMES = {"start": "before the first step", "end": "after the last step"}
Seeds = list[list[dict[str, Any]]]
"""Of every seed, its layers' measures."""


def insights(folders: list[Path]) -> Iterator[dict[str, Any]]:
    """What `addnorm inspect` measured of every run."""
    for folder in folders:
        for run in StudyFolder(folder).runs():
            yield json.loads((run.path / INSIGHT).read_text(encoding="utf-8"))


def measured(folders: list[Path]) -> dict[tuple[int, str, str], Seeds]:
    """Per depth, variant and time (start, end), every seed's layers."""
    found: dict[tuple[int, str, str], Seeds] = defaultdict(list)
    for kept in insights(folders):
        for time in TIMES:
            layers = kept[time]["layers"]
            found[len(layers), kept["variant"], time].append(layers)
    return found


def by_layer(seeds: Seeds, measure: str) -> list[float]:
    """Of every layer the mean over seeds; of a measure drawn on a logarithmic scale the geometric one.

    The plain mean also where some seed has none at all, as ReZero's gradient at its start.
    """
    each = zip(*([layer[measure] for layer in layers] for layers in seeds), strict=True)
    return [geometric_mean(of) if measure in LOGARITHMIC and min(of) > 0 else mean(of) for of in each]


def shares(folders: list[Path], variant: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a variant's shares of its scores after training: a row per layer, means over seeds."""
    matrices = [kept["end"]["depth"]["scores"]["shares"] for kept in insights(folders) if kept["variant"] == variant]
    means = [[mean(part) for part in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
    rows = [
        [str(layer), *(f"{part:.2f}" if source <= layer else "" for source, part in enumerate(parts))]
        for layer, parts in enumerate(means)
    ]
    return ["layer", *(f"of {source}" for source in range(len(means)))], rows


def row(variant: str, time: str, seeds: Seeds) -> list[str]:
    norms = by_layer(seeds, "gradient")
    first, middle, last = norms[0], norms[len(norms) // 2], norms[-1]
    similar = [layer["similarity"] for layers in seeds for layer in layers if layer.get("similarity") is not None]
    return [
        variant,
        str(len(norms)),
        time,
        *(f"{norm:.1e}" for norm in (first, middle, last)),
        f"{last / first:.2g}" if first > 0 else "-",
        *(f"{mean(layers[place]['rms'] for layers in seeds):.2f}" for place in (0, -1)),
        f"{100 * mean(layers[-1]['one_hot'] for layers in seeds):.0f} %",
        f"{mean(similar):.2f}" if similar else "-",
    ]


def draw(found: dict[tuple[int, str, str], Seeds], panels: list[tuple[str, str]], wanted: list[str], name: str) -> None:
    from matplotlib.figure import Figure

    depth = max(layers for layers, _, _ in found)
    dashes = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 3))]
    styles = list(zip(dashes, "os^DvPX", (f"C{at}" for at in range(len(dashes))), strict=True))
    variants = wanted or list(dict.fromkeys(variant for layers, variant, _ in found if layers == depth))
    assert len(variants) <= len(styles), "a line for every variant"
    rows = (len(panels) + 1) // 2
    figure = Figure(figsize=(9, 3.4 * rows - 0.4 * (rows - 1)), layout="constrained")
    one = len({measure for measure, _ in panels}) == 1
    drawn: dict[str, Any] = {}
    for at, (measure, time) in enumerate(panels):
        axes = figure.add_subplot(rows, 2, at + 1, sharey=figure.axes[0] if one and at else None)
        for variant, (line, marker, color) in zip(variants, styles, strict=False):
            values = by_layer(found[depth, variant, time], measure)
            if measure in LOGARITHMIC and min(values) <= 0:
                continue  # a logarithm has no place for ReZero's start
            layers = range(depth)
            drawn[variant] = axes.plot(layers, values, linestyle=line, marker=marker, color=color, markersize=3)[0]
        if measure in LOGARITHMIC:
            axes.set_yscale("log")
        axes.set_title(TIMES[time], fontsize=10)
        axes.set_xlabel("layer")
        axes.set_ylabel(LABELS[measure])
    figure.legend(list(drawn.values()), list(drawn), loc="outside right center", frameon=False)
    save_figure(figure, name)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument(
        "--figure",
        nargs="+",
        default=[],
        choices=[f"{measure}:{time}" for measure in LABELS for time in TIMES],
        metavar="MEASURE:TIME",
    )
    parser.add_argument("--variants", nargs="+", default=[], help="those in the figure; all if not given")
    parser.add_argument(
        "--at", nargs="+", default=list(TIMES), choices=TIMES, help="times in the table; both if not given"
    )
    parser.add_argument("--shares", metavar="VARIANT")
    parsed = parser.parse_args(arguments)
    if parsed.shares:
        write_table(parsed.name, *shares(parsed.folders, parsed.shares))
        return 0
    found = measured(parsed.folders)
    rows = [row(variant, time, seeds) for (_, variant, time), seeds in found.items() if time in parsed.at]
    write_table(parsed.name, COLUMNS, rows)
    if parsed.figure:
        panels = [(measure, time) for measure, _, time in (panel.partition(":") for panel in parsed.figure)]
        draw(found, panels, parsed.variants, parsed.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
