"""The four terms of rotary scores with q/k biases, and how isotropic q and k are, by layer: a table for a report.

    python docs/studies/terms.py NAME DIR VARIANT …             a table to data/NAME.json
    python docs/studies/terms.py NAME DIR VARIANT … --figure    and the terms of the first seed, first and last layer, to
                                                                images/NAME.png

Every finished run of these variants is looked at as `addnorm inspect RUN --terms` does, on texts of four train lengths.
Heads and seeds are averaged. "Fall" is the mean over the nearest quarter of the train length less that beyond the train
length: above zero, the term draws attention to what is near. "Size" is the root mean square over all distances.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tables import write_table

from addnorm.insight.score_terms.inspect import inspect_terms
from addnorm.reporting.sections.terms import figure
from addnorm.store import StudyFolder

HERE = Path(__file__).parent
TERMS = {"qRk": "qᵀRk", "aRk": "aᵀRk", "qRb": "qᵀRb", "aRb": "aᵀRb", "sum": "the sum"}
COLUMNS = [
    "variant",
    "layer",
    *(f"fall of {name}" for name in TERMS.values()),
    "size of aᵀRb / of qᵀRk",
    "mean direction of q",
    "of k",
    "with bias, q",
    "k",
    "chance",
]


def main(arguments: list[str]) -> int:
    words = [argument for argument in arguments if argument != "--figure"]
    if len(words) < 3:
        raise SystemExit(__doc__)
    name, folder, *variants = words
    runs = [run for run in StudyFolder(folder).runs() if run.spec["variant"] in variants and run.final_path.exists()]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    drawn: list[dict[str, Any]] = []
    for run in runs:
        heads = inspect_terms(run.path)["rows"]
        if run.spec["seed"] == min(one.spec["seed"] for one in runs):
            drawn += [head for head in heads if head["layer"] in (0, heads[-1]["layer"])]
        for head in heads:
            found.setdefault((run.spec["variant"], head["layer"]), []).append(head)
    order = sorted(found, key=lambda key: (variants.index(key[0]), key[1]))
    rows = [row(variant, layer, found[variant, layer]) for variant, layer in order]
    write_table(name, COLUMNS, rows)
    if "--figure" in arguments:
        figure(drawn).savefig(HERE / "images" / f"{name}.png", dpi=70, metadata={"Software": None})
    return 0


def row(variant: str, layer: int, heads: Sequence[dict[str, Any]]) -> list[str]:
    def mean(measure: Callable[[dict[str, Any]], float]) -> float:
        return float(np.mean([measure(head) for head in heads]))

    falls = [mean(lambda head, term=term: fall(head, term)) for term in TERMS]  # type: ignore[misc]
    share = mean(lambda head: size(head, "aRb")) / mean(lambda head: size(head, "qRk"))
    directions = [
        mean(lambda head, name=name: head["isotropy"][name])  # type: ignore[misc]
        for name in ("query", "key", "query_biased", "key_biased", "chance")
    ]
    return [
        variant,
        str(layer),
        *(f"{one:+.2f}" for one in falls),
        f"{share:.3f}",
        *(f"{one:.2f}" for one in directions),
    ]


def fall(head: dict[str, Any], term: str) -> float:
    values, distances = np.array(head["terms"][term]["mean"]), np.array(head["distances"])
    return float(values[distances < head["trained"] / 4].mean() - values[distances >= head["trained"]].mean())


def size(head: dict[str, Any], term: str) -> float:
    return float(np.sqrt(np.mean(np.square(head["terms"][term]["mean"]))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
