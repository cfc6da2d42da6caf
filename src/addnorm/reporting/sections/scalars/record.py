"""Learned scalars of a run's last checkpoint, next to the values that weight decay alone would have left.

Read from `scalars.safetensors`, which the worker writes with each checkpoint, so they move while the run does. Verdicts
(learned, decayed, redundant, undriven) are `addnorm explain`'s.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from addnorm.reporting.formats.numbers import mean, mean_of_known, ticks, trimmed
from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.snapshot import Snapshot

NAME = "scalars.safetensors"
_NORMS = re.compile(r"(^|\.)\w*norm\.")
_ENTRY = re.compile(r"(?P<family>.+?)(?:\.(?P<layer>\d+))?\[(?P<index>.*)\]")
_IN_LAYER = re.compile(r"layers\.(?P<layer>\d+)\.(?P<rest>.+)")


@dataclass(frozen=True, kw_only=True)
class ScalarEntry:
    """One learned number, over the variant's seeds."""

    name: str
    """As `scalars.safetensors` has it, such as `scores.log_a.3[1]`."""
    label: str
    """Its layer and its place in it, such as `3, 1`."""
    layer: int | None
    init: float
    decay_only: float
    """Value that weight decay alone would have left, mean over seeds."""
    finals: tuple[tuple[int, float], ...]
    """Seed and value."""
    mean: float
    effective: float | None
    """Effective coefficient in the model, mean over seeds; None if unknown."""
    by_decay: float | None
    """Share of its change that weight decay made, mean over seeds; None if it did not change."""
    snr: float | None
    """Mean gradient over its standard error, mean over seeds."""
    x: float
    """Per cent across the family's panel."""
    y_mean: float
    """Per cent from the top, as are the following."""
    y_init: float
    y_decay: float
    y_finals: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ScalarFamily:
    """One parameter of one variant: all its entries across depth."""

    variant: str
    style: int
    name: str
    entries: tuple[ScalarEntry, ...]
    y_ticks: tuple[tuple[float, str], ...]
    layer_marks: tuple[tuple[float, str], ...]
    """Start of each layer's entries in per cent, and its number."""
    step: int
    """Least number of steps that the seeds' records hold."""
    seeds: tuple[int, ...]


def families(snapshot: Snapshot, variants: Sequence[str]) -> list[ScalarFamily]:
    """Every family of the variants' scalars that runs have recorded."""
    recorded = []
    for variant in variants:
        records = dict(_records(snapshot, variant))
        names = dict.fromkeys(name for record in records.values() for name in record)
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[_taken_apart(name)[0]].append(name)
        recorded += [
            _family(variant, snapshot.variants.index(variant), family, members, records)
            for family, members in groups.items()
        ]
    return recorded


def has_families(snapshot: Snapshot, variants: Sequence[str]) -> bool:
    """True if a run of the variants has recorded a scalar; the first such run answers it."""
    return any(record for variant in variants for _, record in _records(snapshot, variant))


def _records(snapshot: Snapshot, variant: str) -> Iterator[tuple[int, dict[str, "_Record"]]]:
    """Seed and record of each run of a variant."""
    for run in snapshot.of(variant):
        path = snapshot.path / run.run / NAME
        if contained(snapshot.path, path):
            yield run.seed, _read(path)


@dataclass(frozen=True, kw_only=True)
class _Record:
    init: float
    value: float
    decay_only: float
    by_decay: float | None
    snr: float | None
    steps: int
    layer: int | None
    """As given by the mechanism; None in files of earlier versions."""
    effective: float | None


def _read(path: Path) -> dict[str, _Record]:
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata()
            names = json.loads(metadata["names"])
            effective = json.loads(metadata.get("effective", "[]")) or [(None, None)] * len(names)
            arrays = {
                key: file.get_tensor(key)
                for key in ("value", "init", "log_kept", "decay", "gradient", "mean", "mean_square")
            }
            steps = int(file.get_tensor("steps"))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return {}  # a partial file from a full disk, or another version's; the run is shown without a record
    records = {}
    for place, name in enumerate(names):
        if _NORMS.search(name):
            continue
        at = {key: float(values[place]) for key, values in arrays.items()}
        moved = abs(at["decay"]) + abs(at["gradient"])
        error = math.sqrt(max(at["mean_square"] - at["mean"] ** 2, 0.0) / (steps - 1)) if steps > 1 else 0.0
        records[name] = _Record(
            init=at["init"],
            value=at["value"],
            decay_only=at["init"] * float(np.exp(at["log_kept"])),
            by_decay=abs(at["decay"]) / moved if moved > 0 else None,
            snr=abs(at["mean"]) / error if error > 0 else None,
            steps=steps,
            layer=effective[place][0],
            effective=effective[place][1],
        )
    return records


def _taken_apart(name: str) -> tuple[str, int | None, str]:
    """Family, layer and place of `scores.log_a.3[1]` or `layers.2.gate.bias[0]`."""
    inside = _IN_LAYER.fullmatch(name)
    matched = _ENTRY.fullmatch(inside["rest"] if inside else name)
    if matched is None:
        return name, None, ""
    layer = inside["layer"] if inside else matched["layer"]
    return matched["family"], None if layer is None else int(layer), matched["index"].strip().rstrip(",")


def _family(
    variant: str, style: int, name: str, members: list[str], records: dict[int, dict[str, _Record]]
) -> ScalarFamily:
    gathered = {
        entry: {seed: record[entry] for seed, record in records.items() if entry in record} for entry in members
    }
    values = [v for of in gathered.values() for r in of.values() for v in (r.value, r.init, r.decay_only)]
    low, high = min(values), max(values)
    pad = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    low, high = low - pad, high + pad

    def y(value: float) -> float:
        return 100 * (high - value) / (high - low)

    entries, marks = [], []
    layer_before: int | None = None
    for place, (entry, of) in enumerate(gathered.items()):
        _, layer, index = _taken_apart(entry)
        recorded = next((r.layer for r in of.values() if r.layer is not None), None)
        layer = layer if recorded is None else recorded
        x = 100 * (place + 0.5) / len(gathered)
        if layer is not None and layer != layer_before:
            marks.append((100 * place / len(gathered), str(layer)))
            layer_before = layer
        middle = mean([r.value for r in of.values()])
        decay_only = mean([r.decay_only for r in of.values()])
        init = next(iter(of.values())).init
        entries.append(
            ScalarEntry(
                name=entry,
                label=index if layer is None else f"{layer}, {index}" if index else str(layer),
                layer=layer,
                init=init,
                decay_only=decay_only,
                finals=tuple((seed, r.value) for seed, r in of.items()),
                mean=middle,
                effective=mean_of_known([r.effective for r in of.values()]),
                by_decay=mean_of_known([r.by_decay for r in of.values()]),
                snr=mean_of_known([r.snr for r in of.values()]),
                x=x,
                y_mean=y(middle),
                y_init=y(init),
                y_decay=y(decay_only),
                y_finals=tuple(y(r.value) for r in of.values()),
            )
        )
    return ScalarFamily(
        variant=variant,
        style=style,
        name=name,
        entries=tuple(entries),
        y_ticks=tuple((y(v), trimmed(v, 4)) for v in ticks(low, high, 4)),
        layer_marks=tuple(marks),
        step=min(r.steps for of in gathered.values() for r in of.values()),
        seeds=tuple(sorted(records)),
    )
