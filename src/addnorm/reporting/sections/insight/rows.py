"""Rows of the figures and the table of layers, from every run's `insight.json`."""

import math
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.figure import Rows
from addnorm.reporting.measures import measures
from addnorm.reporting.reading.inspections import insights
from addnorm.reporting.snapshot import Snapshot


def layer_rows(snapshot: Snapshot, key: str) -> Rows:
    """One row per variant or checkpoint and layer that has the measure, with a value per inspected seed."""
    if "insight" not in snapshot.derived:  # the runs' files are read once for the figures of all measures
        known = insights(snapshot)
        snapshot.derived["insight"] = {
            measure.key: _rows(snapshot, known, measure.key) for measure in measures().values()
        }
    return list(snapshot.derived["insight"].get(key, ()))


def _rows(snapshot: Snapshot, known: Mapping[str, Mapping[str, Any]], key: str) -> Rows:
    rows: Rows = []
    for place, model in enumerate(snapshot.models):
        contents = [known[of.name] for of in snapshot.measured_in(model) if of.name in known]
        start, end = (
            [_by_layer(content[when], key) for content in contents if when in content] for when in ("start", "end")
        )
        for layer in sorted({layer for of in end for layer in of}):
            rows.append(
                {
                    "variant": model,
                    "place": place,
                    "layer": layer,
                    "start": [of[layer] for of in start if layer in of],
                    "end": [of[layer] for of in end if layer in of],
                }
            )
    return rows


def insight_table(snapshot: Snapshot) -> Rows:
    """Every measure of every layer of every inspected run, one value per row."""
    known = insights(snapshot)
    runs = [known[run.run] for run in snapshot.runs if run.run in known]
    return [
        {
            "variant": content["variant"],
            "seed": content["seed"],
            "step": content["weights"]["step"] if when == "end" else 0,
            "layer": layer,
            "measure": key,
            "value": value,
        }
        for content in runs
        for when in ("start", "end")
        for measure in measures().values()
        for key in (measure.key, *measure.companions)
        for layer, value in _by_layer(content[when], key).items()
    ]


def checkpoint_table(snapshot: Snapshot) -> Rows:
    """Every measure of every layer of every measured checkpoint, one value per row."""
    known = insights(snapshot)
    return [
        {"checkpoint": name, "layer": layer, "measure": key, "value": value}
        for name in snapshot.checkpoints
        if name in known
        for measure in measures().values()
        for key in (measure.key, *measure.companions)
        for layer, value in _by_layer(known[name]["end"], key).items()
    ]


def _by_layer(flow: Mapping[str, Any], key: str) -> dict[int, float | None]:
    return {row["layer"]: _finite(row[key]) for row in flow["layers"] if key in row}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
