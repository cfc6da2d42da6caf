"""The four terms of scores, text and LaTeX: one line per layer, heads averaged. Takes the JSON of `addnorm inspect --terms`."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.tables.latex import escaped, number, tabular

TERMS = {"qRk": "qᵀRk", "aRk": "aᵀRk", "qRb": "qᵀRb", "aRb": "aᵀRb"}

_IN_LATEX = ("$q^{\\top}Rk$", "$a^{\\top}Rk$", "$q^{\\top}Rb$", "$a^{\\top}Rb$")
_HEADING = "How much each term changes with the distance (standard deviation), and mean directions (0: isotropic)"


def text(found: Mapping[str, Any], width: int = 100) -> str:
    """The tables of all models, for a terminal.

    Args:
        found: `models` and `rows`.
        width: columns of running text.
    """
    parts = []
    for model in found["models"]:
        rows = [row for row in found["rows"] if row["label"] == model["label"]]
        parts += [_about(model, width), _sizes(rows), _fall(rows, model)]
    return "\n\n".join(parts) + "\n"


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much each term changes with the distance, and mean directions: a line per model and layer."""
    head = ["run", "layer", *_IN_LATEX, "mean $q$", "mean $k$", "by chance"]
    lines = []
    for label in dict.fromkeys(row["label"] for row in rows):
        for layer, heads in _by_layer([row for row in rows if row["label"] == label]).items():
            swings, directions = _measured(heads)
            lines.append([escaped(label), str(layer), *(number(one, 3) for one in swings)])
            lines[-1] += [number(one, 2) for one in directions]
    return tabular("lr" + "r" * (len(TERMS) + 3), head, lines, [f"{_HEADING}; heads averaged, one run of each model."])


def _about(model: Mapping[str, Any], width: int) -> str:
    bias = {(True, True): "q and k biases", (True, False): "a q bias", (False, True): "a k bias"}.get(
        (model["q_bias"], model["k_bias"]), "no q or k bias"
    )
    trained = "" if model["trained"] is None else f", trained at {model['trained']}"
    return textwrap.fill(
        f"{model['run']}: {bias}; {model['samples']} texts of {model['length']} tokens{trained}. The four terms add up to the "
        f"model's scores: largest difference {model['largest_error']:.1e}, rounding explains up to {model['rounding']:.1e}.",
        width,
    )


def _sizes(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["layer", *TERMS.values(), "|mean q̂|", "|mean k̂|", "by chance"]
    body = []
    for layer, mine in _by_layer(rows).items():
        swings, directions = _measured(mine)
        body.append([str(layer), *(f"{one:.3f}" for one in swings), *(f"{one:.2f}" for one in directions)])
    return f"{_HEADING}:\n" + _aligned([head, *body])


def _measured(heads: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """How much each term of a layer changes, and the lengths of its mean directions: query, key, by chance."""
    swings = [_mean([_swing(row["terms"][term]["mean"]) for row in heads]) for term in TERMS]
    return swings, [_mean([row["isotropy"][name] for row in heads]) for name in ("query", "key", "chance")]


def _fall(rows: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> str:
    """The scores at some distances, with the biases and without, next to each other."""
    distances = rows[0]["distances"]
    trained = model["trained"] or distances[-1]
    places = sorted(
        {_nearest(distances, wanted) for wanted in (0.0, trained / 4, trained / 2, float(trained), distances[-1])}
    )
    head = ["layer", *(f"d={distances[place]:g}" for place in places for _ in (0, 1))]
    kinds = ["", *(name for _ in places for name in ("with", "without"))]
    body = []
    for layer, mine in _by_layer(rows).items():
        cells = [
            f"{_mean([row['terms'][term]['mean'][place] for row in mine]):.3f}"
            for place in places
            for term in ("sum", "qRk")
        ]
        body.append([str(layer), *cells])
    return "Mean score by distance, with the biases and with the first term alone:\n" + _aligned([head, kinds, *body])


def _by_layer(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["layer"], []).append(row)
    return found


def _swing(curve: Sequence[float | int]) -> float:
    middle = _mean(curve)
    return math.sqrt(_mean([(value - middle) ** 2 for value in curve]))


def _mean(values: Sequence[float | int]) -> float:
    return sum(values) / len(values)


def _nearest(distances: Sequence[float], wanted: float) -> int:
    return min(range(len(distances)), key=lambda place: abs(distances[place] - wanted))


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column].replace("\u0302", "")) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width + cell.count("\u0302")) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
