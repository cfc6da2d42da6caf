"""Learned scalars of a run's last checkpoint, next to the values that weight decay alone would have left.

Read from `scalars.safetensors`, which the worker writes with each checkpoint, so they move while the run does. Verdicts
(learned, decayed, redundant, undriven) are `addnorm explain`'s.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from addnorm.catalogue import family_of
from addnorm.reporting.formats.numbers import mean, mean_of_known, ticks, trimmed
from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.files import Damaged
from addnorm.store.scalar_record import NAME, ScalarRecord


@dataclass(frozen=True, kw_only=True)
class ScalarEntry:
    """One learned number, over the variant's seeds."""

    name: str
    """As `scalars.safetensors` has it, such as `scores.log_a.3[1]`."""
    label: str
    """Its layer and its place in it, such as `3, 1`."""
    layer: int | None
    init: float
    """Mean over seeds."""
    decay_only: float
    """Value that weight decay alone would have left, mean over seeds."""
    finals: tuple[tuple[int, float], ...]
    """Seed and value."""
    decays: tuple[tuple[int, float], ...]
    """Seed and the value that weight decay alone would have left there: seeds may start from values of their own."""
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
    damaged: tuple[int, ...]
    """Seeds whose record cannot be read."""


def families(snapshot: Snapshot, variants: Sequence[str]) -> list[ScalarFamily]:
    """Every family of the variants' scalars that runs have recorded."""
    recorded = []
    for variant in variants:
        read = dict(_records(snapshot, variant))
        records = {seed: record for seed, record in read.items() if record is not None}
        damaged = tuple(sorted(read.keys() - records.keys()))
        names = dict.fromkeys(name for record in records.values() for name in record)
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[_taken_apart(name)[0]].append(name)
        recorded += [
            _family(variant, snapshot.variants.index(variant), family, members, records, damaged)
            for family, members in groups.items()
        ]
    return recorded


def has_families(snapshot: Snapshot, variants: Sequence[str]) -> bool:
    """True if a run of the variants has recorded a scalar; the first such run answers it."""
    return any(record for variant in variants for _, record in _records(snapshot, variant))


def _records(snapshot: Snapshot, variant: str) -> Iterator[tuple[int, dict[str, "_Record"] | None]]:
    """Seed and record of each run of a variant; None for a partial file from a full disk, or another version's."""
    for run in snapshot.of(variant):
        path = snapshot.path / run.run / NAME
        if contained(snapshot.path, path):
            try:
                yield run.seed, _read(ScalarRecord.read(path))
            except Damaged:
                yield run.seed, None


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


def _read(record: ScalarRecord) -> dict[str, _Record]:
    decays, values = record.decay_only, record.arrays
    return {
        record.names[place]: _Record(
            init=float(values["init"][place]),
            value=float(values["value"][place]),
            decay_only=float(decays[place]),
            by_decay=record.by_decay(place),
            snr=record.snr(place),
            steps=record.steps,
            layer=record.effective[place][0],
            effective=record.effective[place][1],
        )
        for place in record.columns()
    }


def _taken_apart(name: str) -> tuple[str, int | None, str]:
    """Family, layer and place of `scores.log_a.3[1]` or `layers.2.gate.bias[0]`."""
    parameter, _, index = name.removesuffix("]").partition("[")
    layer = next((int(part) for part in parameter.split(".") if part.isdigit()), None)
    return family_of(parameter), layer, index.strip().rstrip(",")


def _family(
    variant: str,
    style: int,
    name: str,
    members: list[str],
    records: dict[int, dict[str, _Record]],
    damaged: tuple[int, ...],
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
        init = mean([r.init for r in of.values()])
        entries.append(
            ScalarEntry(
                name=entry,
                label=index if layer is None else f"{layer}, {index}" if index else str(layer),
                layer=layer,
                init=init,
                decay_only=decay_only,
                finals=tuple((seed, r.value) for seed, r in of.items()),
                decays=tuple((seed, r.decay_only) for seed, r in of.items()),
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
        damaged=damaged,
    )
