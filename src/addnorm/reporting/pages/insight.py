"""What `addnorm inspect` and `addnorm audit` left in a model's run folders, made ready to draw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.pages.chart import ticks
from addnorm.reporting.pages.kept import kept
from addnorm.reporting.pages.numbers import fixed
from addnorm.reporting.pages.snapshot import Snapshot

NAME = "insight.json"
AUDIT = "audit.json"
"""The audit of one run, in its own folder."""
MEASURES = ("gradient", "rms", "share", "entropy", "one_hot", "similarity", "own_share", "exit_loss")
"""Numbers per layer that are drawn, if a model has them."""
VERDICTS = ("redundant", "partly_redundant", "foldable", "effective", "negligible", "undecided")
"""What an audit may say of a parameter, as phrases' keys."""
_LOGARITHMIC = frozenset({"gradient", "rms"})


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One measure over the layers, at the start and at the end of training."""

    measure: str
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


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The newest audit among a model's runs."""

    run: str
    counts: tuple[tuple[str, int, int], ...]
    """Verdict (of `VERDICTS`), number of findings, numbers in those parameters."""
    findings: tuple[tuple[str, str, str, str], ...]
    """Parameter, verdict, redundant of all degrees of freedom, where it folds to; effective ones left out."""


def insight(snapshot: Snapshot, variant: str) -> Insight:
    """The variant's inspected runs, layer by layer."""
    contents: dict[int, Mapping[str, Any]] = {}
    for run in snapshot.of(variant):
        content = kept(snapshot, f"{run.run}/{NAME}")
        if isinstance(content.get("start"), dict) and isinstance(content.get("end"), dict):
            contents[run.seed] = content
    panels = [panel for measure in MEASURES if (panel := _panel(measure, list(contents.values()))) is not None]
    runs = snapshot.of(variant)
    return Insight(panels=tuple(panels), seeds=tuple(sorted(contents)), example=runs[0].run if runs else "")


def audited(snapshot: Snapshot, variant: str) -> Audited | None:
    """The audit of the first of the variant's runs that has one."""
    for run in snapshot.of(variant):
        content = kept(snapshot, f"{run.run}/{AUDIT}")
        findings = _findings(content)
        if findings:
            verdicts = list(dict.fromkeys(entry["verdict"] for entry in findings))
            return Audited(
                run=run.run,
                counts=tuple(
                    (verdict, len(of), sum(_whole(entry.get("size")) for entry in of))
                    for verdict in verdicts
                    if (of := [entry for entry in findings if entry["verdict"] == verdict])
                ),
                findings=tuple(
                    (
                        str(entry.get("parameter")),
                        entry["verdict"],
                        f"{_whole(entry.get('redundant_dof'))} / {_whole(entry.get('size'))}",
                        str(entry.get("fold_into") or ""),
                    )
                    for entry in findings
                    if entry["verdict"] != "effective"
                ),
            )
    return None


def _panel(measure: str, contents: Sequence[Mapping[str, Any]]) -> Panel | None:
    start = [_layers(content["start"], measure) for content in contents]
    end = [_layers(content["end"], measure) for content in contents]
    layers = sorted({layer for of in (*start, *end) for layer in of})
    before, after = ([_mean([of[layer] for of in when if layer in of]) for layer in layers] for when in (start, end))
    values = [value for value in (*before, *after) if value is not None]
    if not values:
        return None
    is_log = measure in _LOGARITHMIC and min(values) > 0 and max(values) > 10 * min(values)
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
        measure=measure,
        layers=tuple(layers),
        start=tuple(before),
        end=tuple(after),
        xs=tuple(100 * (place + 0.5) / len(layers) for place in range(len(layers))),
        y_start=tuple(map(y, before)),
        y_end=tuple(map(y, after)),
        y_ticks=tuple((at, _short(mark)) for mark in marks if (at := y(mark)) is not None),
        is_log=is_log,
    )


def _layers(flow: Mapping[str, Any], measure: str) -> dict[int, float]:
    found = {}
    layers = flow.get("layers")
    for entry in layers if isinstance(layers, list) else []:
        value = entry.get(measure) if isinstance(entry, dict) else None
        if isinstance(value, int | float) and math.isfinite(value) and isinstance(entry.get("layer"), int):
            found[entry["layer"]] = float(value)
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _findings(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The audit's findings with their verdicts as phrases' keys; none where it is of another version."""
    found = [
        {**entry, "verdict": str(entry.get("verdict")).replace(" ", "_")}
        for entry in content.get("findings", [])
        if isinstance(entry, dict)
    ]
    return found if all(entry["verdict"] in VERDICTS for entry in found) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _short(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:.0e}" if not 1e-3 <= abs(value) < 1e4 else fixed(value, 4).rstrip("0").rstrip(".")
