"""The four terms of a model's scores, as `addnorm inspect RUN --terms` left them in RUN/terms.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.pages.chart import ticks
from addnorm.reporting.pages.kept import UNREADABLE, kept
from addnorm.reporting.pages.numbers import fixed
from addnorm.reporting.pages.snapshot import Snapshot

NAME = "terms.json"
TERMS = {"qRk": "qᵀRk", "aRk": "aᵀRk", "qRb": "qᵀRb", "aRb": "aᵀRb"}
"""Each term's key in the file, and its formula."""
_BIASES = {"qRk": (), "aRk": ("q_bias",), "qRb": ("k_bias",), "aRb": ("q_bias", "k_bias")}
"""What a model must have for a term to be one of its scores': its query biases are a, its key biases b."""
_MOST_ROWS = 17
"""Of a table; a curve has as many points as the texts have distances."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, heads averaged."""

    layer: int
    swings: tuple[float, ...]
    """Standard deviation of each term over the distances."""
    query: float
    """Length of the mean direction of q; 0 where q points every way."""
    key: float
    chance: float
    """The length that as many random directions would have."""
    lines: tuple[str, ...]
    """Points of each term's curve, in thousandths of the panel."""
    table: tuple[tuple[float, tuple[float, ...]], ...]
    """The curves' values at some of the distances."""
    y_ticks: tuple[tuple[float, str], ...]
    trained: float | None
    """Where the train length lies, in per cent across; None beyond the panel."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One run's terms."""

    run: str
    samples: int
    length: int
    farthest: float
    """Largest distance in tokens."""
    names: tuple[str, ...]
    """Formulas of the terms that the model's scores have: those with a bias only where it has one."""
    layers: tuple[Layer, ...]


def terms(snapshot: Snapshot, variant: str) -> Terms | None:
    """The terms of the first of the variant's runs that has them; None without any."""
    for run in snapshot.of(variant):
        content = kept(snapshot, f"{run.run}/{NAME}")
        try:
            if content:
                return _read(run.run, content)
        except UNREADABLE:
            continue
    return None


def term_rows(snapshot: Snapshot) -> dict[str, list[dict[str, Any]]]:
    """The file's rows, of the first run of each variant that has them."""
    found = {}
    for variant in snapshot.variants:
        shown = terms(snapshot, variant)
        if shown is not None:
            found[variant] = list(kept(snapshot, f"{shown.run}/{NAME}")["rows"])
    return found


def _read(run: str, content: Mapping[str, Any]) -> Terms:
    rows = content["rows"]
    built = [term for term, biases in _BIASES.items() if all(content.get(bias, True) for bias in biases)]
    return Terms(
        run=run,
        samples=int(content["samples"]),
        length=int(content["length"]),
        farthest=float(rows[0]["distances"][-1]),
        names=tuple(TERMS[term] for term in built),
        layers=tuple(
            _layer([row for row in rows if row["layer"] == layer], layer, built)
            for layer in sorted({int(row["layer"]) for row in rows})
        ),
    )


def _layer(heads: Sequence[Mapping[str, Any]], layer: int, built: Sequence[str]) -> Layer:
    curves = [
        [_mean(values) for values in zip(*(row["terms"][term]["mean"] for row in heads), strict=True)] for term in built
    ]
    distances = [float(distance) for distance in heads[0]["distances"]]
    values = [value for curve in curves for value in curve]
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or 1.0
    low, high = low - pad, high + pad
    first, last = distances[0], max(distances[-1], distances[0] + 1)

    def point(distance: float, value: float) -> str:
        return f"{1000 * (distance - first) / (last - first):.1f},{1000 * (high - value) / (high - low):.1f}"

    trained = heads[0]["trained"]
    return Layer(
        layer=layer,
        swings=tuple(_mean([_swing(row["terms"][term]["mean"]) for row in heads]) for term in built),
        query=_mean([row["isotropy"]["query"] for row in heads]),
        key=_mean([row["isotropy"]["key"] for row in heads]),
        chance=float(heads[0]["isotropy"]["chance"]),
        lines=tuple(
            " ".join(point(distance, value) for distance, value in zip(distances, curve, strict=True))
            for curve in curves
        ),
        table=tuple((distances[place], tuple(curve[place] for curve in curves)) for place in _spread(len(distances))),
        y_ticks=tuple(
            (100 * (high - at) / (high - low), fixed(at, 4).rstrip("0").rstrip(".")) for at in ticks(low, high, 4)
        ),
        trained=100 * (trained - first) / (last - first) if trained is not None and trained <= last else None,
    )


def _spread(count: int) -> list[int]:
    """Up to `_MOST_ROWS` places, the first and the last among them."""
    rows = min(count, _MOST_ROWS)
    return [round(row * (count - 1) / max(1, rows - 1)) for row in range(rows)]


def _swing(curve: Sequence[float | int]) -> float:
    middle = _mean(curve)
    return math.sqrt(_mean([(value - middle) ** 2 for value in curve]))


def _mean(values: Sequence[float | int]) -> float:
    return float(sum(values) / len(values))
