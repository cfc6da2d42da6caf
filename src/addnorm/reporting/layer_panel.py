"""Geometry of a panel that draws one measure over the layers, a line per moment or per model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.numbers import ticks, trimmed
from addnorm.reporting.measures import LayerMeasure
from addnorm.words import Phrases

_MOST_MARKS = 16
"""Layers that are named below a panel."""
Values = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class LayerPanel:
    """One measure over the layers."""

    key: str
    """Of the measure."""
    title: str
    layers: tuple[int, ...]
    lines: tuple[Values, ...]
    """Of each line its values, in the order of the layers."""
    xs: tuple[float, ...]
    """Per cent across the panel."""
    ys: tuple[Values, ...]
    """Of each line, per cent from the top."""
    x_ticks: tuple[tuple[float, int], ...]
    """Places and layers."""
    y_ticks: tuple[tuple[float, str], ...]
    is_log: bool


def layer_panel(measure: LayerMeasure, lines: Sequence[Mapping[int, float]], t: Phrases) -> LayerPanel | None:
    """Place the lines of a measure.

    Args:
        measure: of the panel.
        lines: values by layer.
        t: phrases of the panel's language.

    Returns:
        The panel; None if no line has a value.
    """
    layers = sorted({layer for line in lines for layer in line})
    values = [value for line in lines for value in line.values()]
    if not values:
        return None
    # Logarithmic only if it helps and is possible: a measure over less than a factor of ten reads better on a
    # straight axis, and zeros have no logarithm. Both lines of a panel share the scale, or start and end could not be
    # compared.
    is_log = measure.panel_scale == "log" and min(values) > 0 and max(values) > 10 * min(values)
    scaled = [math.log10(value) for value in values] if is_log else values
    low, high = min(scaled), max(scaled)
    if not is_log and low == high == 0:  # a share that is zero everywhere; there is nothing below it
        high = 1.0
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + pad

    def y(value: float | None) -> float | None:
        return None if value is None else 100 * (high - (math.log10(value) if is_log else value)) / (high - low)

    marks = [10.0**k for k in range(math.ceil(low), math.floor(high) + 1)] if is_log else ticks(low, high, 4)
    xs = tuple(100 * (place + 0.5) / len(layers) for place in range(len(layers)))
    drawn = [tuple(line.get(layer) for layer in layers) for line in lines]
    return LayerPanel(
        key=measure.key,
        title=t.translation(f"measure.{measure.name}.panel_title", measure.panel_title),
        layers=tuple(layers),
        lines=tuple(drawn),
        xs=xs,
        ys=tuple(tuple(map(y, line)) for line in drawn),
        x_ticks=tuple(zip(xs, layers, strict=True))[:: math.ceil(len(layers) / _MOST_MARKS)],
        y_ticks=tuple(
            (at, text) for mark, text in zip(marks, _texts(marks), strict=True) if (at := y(mark)) is not None
        ),
        is_log=is_log,
    )


def layer_values(flow: Mapping[str, Any], key: str) -> dict[int, float]:
    """The finite values of a measure by layer, of a part of `insight.json`."""
    finite = {}
    layers = flow.get("layers")
    for entry in layers if isinstance(layers, list) else []:
        value = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(value, int | float) and math.isfinite(value) and isinstance(entry.get("layer"), int):
            finite[entry["layer"]] = float(value)
    return finite


def _texts(marks: Sequence[float]) -> list[str]:
    """Texts of ticks, with as many digits as tell them apart."""
    for digits in range(4, 9):
        texts = [_short(mark, digits) for mark in marks]
        if len(set(texts)) == len(texts):
            break
    return texts


def _short(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e4:
        return f"{value:.{digits - 4}e}"
    return trimmed(value, digits)
