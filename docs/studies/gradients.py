"""Each layer's gradient, stream and attention in a study's runs, from what `addnorm inspect DIR` left in their folders.

python docs/studies/gradients.py NAME DIR …               a table to data/NAME.json
python docs/studies/gradients.py NAME DIR … --figure      and gradients by layer of the last folder to images/NAME.svg
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from addnorm.store import StudyFolder

HERE = Path(__file__).parent
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


def by_variant(folder: Path) -> dict[tuple[str, str], list[list[dict[str, Any]]]]:
    """Per variant and time (start, end), every seed's layers."""
    found: dict[tuple[str, str], list[list[dict[str, Any]]]] = defaultdict(list)
    for run in StudyFolder(folder).runs():
        kept = json.loads((run.path / "insight.json").read_text(encoding="utf-8"))
        for time in ("start", "end"):
            found[kept["variant"], time].append(kept[time]["layers"])
    return found


def gradients(seeds: list[list[dict[str, Any]]]) -> list[float]:
    """Of every layer, the geometric mean over seeds; the plain one where some seed has none at all, as ReZero at its start."""
    each = [[layer["gradient"] for layer in layers] for layers in seeds]
    return [geometric_mean(norms) if min(norms) > 0 else mean(norms) for norms in zip(*each, strict=True)]


def row(variant: str, time: str, seeds: list[list[dict[str, Any]]]) -> list[str]:
    norms = gradients(seeds)
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


def draw(found: dict[tuple[str, str], list[list[dict[str, Any]]]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    dashes = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 3))]
    styles = list(zip(dashes, "os^DvPX", (f"C{at}" for at in range(len(dashes))), strict=True))
    variants = list(dict.fromkeys(variant for variant, _ in found))
    assert len(variants) <= len(styles), "a line for every variant"
    for axes, time in zip(figure.subplots(1, 2, sharey=True), ("start", "end"), strict=True):
        for variant, (line, marker, color) in zip(variants, styles, strict=False):
            norms = gradients(found[variant, time])
            if min(norms) > 0:  # a logarithm has no place for ReZero's start
                layers = range(1, len(norms) + 1)
                axes.semilogy(layers, norms, linestyle=line, marker=marker, color=color, markersize=3, label=variant)
        axes.set_title({"start": "before the first step", "end": "after the last step"}[time])
        axes.set_xlabel("layer")
    figure.axes[0].set_ylabel("norm of the layer's gradient")
    handles, names = figure.axes[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main(arguments: list[str]) -> int:
    figure = "--figure" in arguments
    words = [argument for argument in arguments if argument != "--figure"]
    if len(words) < 2:
        raise SystemExit(__doc__)
    name, *folders = words
    each = [by_variant(Path(folder)) for folder in folders]
    rows = [row(variant, time, seeds) for found in each for (variant, time), seeds in found.items()]
    lines = ",\n  ".join(json.dumps(line) for line in rows)
    text = f'{{\n "columns": {json.dumps(COLUMNS)},\n "rows": [\n  {lines}\n ]\n}}\n'
    (HERE / "data" / f"{name}.json").write_text(text, encoding="utf-8")
    if figure:
        draw(each[-1], HERE / "images" / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
