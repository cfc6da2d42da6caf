"""Panels of a model's page: one measure over the layers each, at the start and at the end of training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.drawing.chart import ticks
from addnorm.reporting.formats.numbers import fixed
from addnorm.reporting.measure import Measure
from addnorm.reporting.measures import measures
from addnorm.reporting.reading.inspections import NAME
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.words import Phrases, phrases


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One measure over the layers, at the start and at the end of training."""

    key: str
    """Of the measure."""
    title: str
    layers: tuple[int, ...]
    start: tuple[float | None, ...]
    end: tuple[float | None, ...]
    xs: tuple[float, ...]
    """Per cent across the panel."""
    y_start: tuple[float | None, ...]
    """Per cent from the top."""
    y_end: tuple[float | None, ...]
    y_ticks: tuple[tuple[float, str], ...]
    is_log: bool


@dataclass(frozen=True, kw_only=True)
class Insight:
    """What is known of the inside of a model's runs."""

    panels: tuple[Panel, ...]
    seeds: tuple[int, ...]
    """Seeds whose runs were inspected; panels are means over them."""
    example: str
    """A run that can be inspected, for the command to give."""


def insight(snapshot: Snapshot, variant: str, language: str = "en") -> Insight:
    """The variant's inspected runs, layer by layer."""
    t = phrases(language)
    contents: dict[int, Mapping[str, Any]] = {}
    for run in snapshot.of(variant):
        content = content_of(snapshot, f"{run.run}/{NAME}")
        if isinstance(content.get("start"), dict) and isinstance(content.get("end"), dict):
            contents[run.seed] = content
    panels = [
        panel for measure in measures().values() if (panel := _panel(measure, list(contents.values()), t)) is not None
    ]
    runs = snapshot.of(variant)
    return Insight(panels=tuple(panels), seeds=tuple(sorted(contents)), example=runs[0].run if runs else "")


def _panel(measure: Measure, contents: Sequence[Mapping[str, Any]], t: Phrases) -> Panel | None:
    start = [_layers(content["start"], measure.key) for content in contents]
    end = [_layers(content["end"], measure.key) for content in contents]
    layers = sorted({layer for of in (*start, *end) for layer in of})
    before, after = ([_mean([of[layer] for of in when if layer in of]) for layer in layers] for when in (start, end))
    values = [value for value in (*before, *after) if value is not None]
    if not values:
        return None
    is_log = measure.panel_scale == "log" and min(values) > 0 and max(values) > 10 * min(values)
    scaled = [math.log10(value) for value in values] if is_log else values
    low, high = min(scaled), max(scaled)
    if not is_log and low == high == 0:  # such as a share of which there is none: nothing lies below
        high = 1.0
    pad = (high - low) * 0.08 or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + pad

    def y(value: float | None) -> float | None:
        return None if value is None else 100 * (high - (math.log10(value) if is_log else value)) / (high - low)

    marks = [10.0**k for k in range(math.ceil(low), math.floor(high) + 1)] if is_log else ticks(low, high, 4)
    return Panel(
        key=measure.key,
        title=t.translation(f"measure.{measure.name}.panel_title", measure.panel_title),
        layers=tuple(layers),
        start=tuple(before),
        end=tuple(after),
        xs=tuple(100 * (place + 0.5) / len(layers) for place in range(len(layers))),
        y_start=tuple(map(y, before)),
        y_end=tuple(map(y, after)),
        y_ticks=tuple((at, _short(mark)) for mark in marks if (at := y(mark)) is not None),
        is_log=is_log,
    )


def _layers(flow: Mapping[str, Any], key: str) -> dict[int, float]:
    found = {}
    layers = flow.get("layers")
    for entry in layers if isinstance(layers, list) else []:
        value = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(value, int | float) and math.isfinite(value) and isinstance(entry.get("layer"), int):
            found[entry["layer"]] = float(value)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _short(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.0e}" if not 1e-3 <= abs(value) < 1e4 else fixed(value, 4).rstrip("0").rstrip(".")
