"""Norm of each layer's gradient before the first step and after the last, in a study's runs.

benchmarks/gradient_by_depth.py runs/deep24 runs/deep48                 a table
benchmarks/gradient_by_depth.py runs/deep24 --figure gradients.svg      and a figure of the first folder
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, mean

import torch
from safetensors.torch import load_file

from addnorm.lab.codec import decode
from addnorm.lab.data import Dataset, held_batches
from addnorm.lab.objective import measure, score
from addnorm.lab.study import RunSpec
from addnorm.store import Run, Study

Norms = list[float]


def norms(run: Run, *, trained: bool) -> Norms:
    """Gradient norm of every layer, of the mean loss over 32 held-out windows, without dropout."""
    spec = decode(RunSpec, run.spec["spec"])
    dataset = Dataset.load(run.path.parent / "data")
    model = spec.model.build(spec.seed).eval()
    if trained:
        model.load_state_dict(load_file(run.final_path))
    for index, windows in enumerate(held_batches(dataset, 8, spec.training.seq, 32)):
        batch = score(spec.model.objective, windows, dataset, seed=0, step=index, device=torch.device("cpu"))
        (measure(model, batch).loss / 4).backward()
    return [
        sum(p.grad.square().sum().item() for p in layer.parameters() if p.grad is not None) ** 0.5
        for layer in model.layers
    ]


def of_folder(folder: Path) -> dict[tuple[str, str], Norms]:
    """Per variant and time, the geometric mean over seeds of every layer's norm."""
    found: dict[tuple[str, str], list[Norms]] = defaultdict(list)
    for run in Study(folder).runs():
        if run.final_path.exists():
            for time, trained in (("start", False), ("end", True)):
                found[run.spec["spec"]["variant"], time].append(norms(run, trained=trained))
    # ReZero's branches have no gradient at all while their scalar is zero.
    return {
        key: [geometric_mean(v) if min(v) > 0 else mean(v) for v in zip(*each, strict=True)]
        for key, each in found.items()
    }


def rows(found: dict[tuple[str, str], Norms]) -> list[list[str]]:
    return [
        [
            variant,
            str(len(each)),
            time,
            *(f"{each[place]:.1e}" for place in (0, len(each) // 2, -1)),
            f"{each[-1] / each[0]:.2g}" if each[0] > 0 else "-",
        ]
        for (variant, time), each in found.items()
    ]


def draw(found: dict[tuple[str, str], Norms], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, time in zip(figure.subplots(1, 2, sharey=True), ("start", "end"), strict=True):
        styles = zip(("-", "--", "-.", ":", (0, (5, 1))), ("o", "s", "^", "D", "v"), strict=True)
        for ((variant, at), each), (dashes, marker) in zip(
            [item for item in found.items() if item[0][1] == time], styles, strict=False
        ):
            if at == time and min(each) > 0:
                axes.semilogy(
                    range(1, len(each) + 1), each, linestyle=dashes, marker=marker, markersize=3, label=variant
                )
        axes.set_title({"start": "before the first step", "end": "after the last step"}[time])
        axes.set_xlabel("layer")
    figure.axes[0].set_ylabel("gradient norm of the layer")
    figure.axes[1].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, nargs="+")
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folders = [of_folder(folder) for folder in options.dir]
    columns = ["variant", "layers", "at", "first layer", "middle", "last layer", "last / first"]
    print(json.dumps({"columns": columns, "rows": [row for found in folders for row in rows(found)]}, indent=1))
    if options.figure is not None:
        draw(folders[0], options.figure)


if __name__ == "__main__":
    main()
