"""Loss and accuracy at lengths beyond the trained one, from the file DIR/extrapolation.json of `addnorm extrapolate`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.measured import in_small_unit
from addnorm.reporting.formats.numbers import ticks, trimmed
from addnorm.reporting.reading.study_files import UNREADABLE, content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "extrapolation.json"


@dataclass(frozen=True, kw_only=True)
class EvaluatedModel:
    """A model, with the switches that were on."""

    label: str
    variant: str
    style: int
    cells: tuple[Mapping[str, Any], ...]
    """One per length: `loss` (mean over seeds), `accuracy` (a share), `loss_reach`, `accuracy_reach` (half of
    their intervals), and `against`: comparisons by reference, losses in the unit of differences."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One mean in a panel, in per cent from the left and from the top."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LengthPanel:
    """One measure against the length."""

    measure: str
    """`loss` or `accuracy`."""
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[tuple[int, str, tuple[Mark, ...]], ...]
    """Style, label and marks."""


@dataclass(frozen=True, kw_only=True)
class AtLengths:
    """The whole evaluation."""

    trained: int
    lengths: tuple[int, ...]
    scoring: str
    ending: int
    confidence: float
    margin: float
    """In the unit of differences."""
    references: tuple[str, ...]
    lines: tuple[EvaluatedModel, ...]
    panels: tuple[LengthPanel, ...]
    xs: tuple[float, ...]
    """Per cent across a panel, one per length."""
    notes: tuple[tuple[str, Any], ...]
    """Text in English, and its code and values if the file has them."""


def lengths(snapshot: Snapshot) -> AtLengths | None:
    """The study's evaluation at lengths; None if no file that this version can read exists."""
    content = content_of(snapshot, NAME)
    try:
        return _read(content, 1000 if snapshot.measure.in_nats else 1) if content else None
    except UNREADABLE:
        return None


def _read(content: Mapping[str, Any], factor: int) -> AtLengths:
    tokens = [int(length) for length in content["lengths"]]
    rows = {(row["label"], row["length"]): row for row in content["rows"]}
    references = tuple(map(str, content["references"]))
    lines = tuple(
        EvaluatedModel(
            label=str(line["label"]),
            variant=str(line["variant"]),
            style=place,
            cells=tuple(_cell(rows[line["label"], length], references, factor) for length in tokens),
        )
        for place, line in enumerate(content["lines"])
    )
    xs = tuple(100 * (place + 0.5) / len(tokens) for place in range(len(tokens)))
    warnings, notes = list(content["warnings"]), list(content.get("notes", []))
    if len(notes) != len(warnings):
        notes = [None] * len(warnings)  # a file from before sentences had codes
    return AtLengths(
        trained=int(content["trained"]),
        lengths=tuple(tokens),
        scoring="ending" if content["scoring"] == "ending" else "window",
        ending=int(content["ending"]),
        confidence=float(content["confidence"]),
        margin=factor * float(content["margin"]),
        references=references,
        lines=lines,
        panels=tuple(panel for name in ("loss", "accuracy") if (panel := _panel(name, lines, xs)) is not None),
        xs=xs,
        notes=tuple((str(text), note) for text, note in zip(warnings, notes, strict=True)),
    )


def _cell(row: Mapping[str, Any], references: Sequence[str], factor: int) -> Mapping[str, Any]:
    versus = row["versus"]
    cell: dict[str, Any] = {
        "against": {name: in_small_unit(versus[name], factor) for name in references if versus.get(name)}
    }
    for measure in ("loss", "accuracy"):
        mean, ends = row[measure], row[f"{measure}_interval"]
        cell[measure] = None if mean is None else float(mean)
        cell[f"{measure}_reach"] = None if ends is None else (float(ends[1]) - float(ends[0])) / 2
    return cell


def _panel(measure: str, lines: Sequence[EvaluatedModel], xs: Sequence[float]) -> LengthPanel | None:
    factor, digits = (100.0, 2) if measure == "accuracy" else (1.0, 4)
    drawn: list[tuple[EvaluatedModel, list[tuple[float, float, float]]]] = []
    for place, line in enumerate(lines):
        # Lines are offset so that equal means and wide intervals do not hide each other.
        aside = min(1.4 * len(lines), 55 / len(xs)) * (place / max(1, len(lines) - 1) - 0.5)
        points = []
        for x, cell in zip(xs, line.cells, strict=True):
            mean, reach = cell[measure], cell[f"{measure}_reach"]
            if mean is not None:
                points.append((x + aside, factor * mean, factor * (reach or 0.0)))
        drawn.append((line, points))
    means = [mean for _, points in drawn for _, mean, _ in points]
    if not means:
        return None
    # With few seeds, intervals are far wider than the differences between means; they are cut off at the panel's edge.
    pad = 0.35 * (max(means) - min(means)) or 0.1 * abs(max(means)) or 1.0
    low, high = min(means) - pad, max(means) + pad

    def y(value: float) -> float:
        return max(0.0, min(100.0, 100 * (high - value) / (high - low)))

    return LengthPanel(
        measure=measure,
        y_ticks=tuple((y(at), trimmed(at, digits)) for at in ticks(low, high, 4)),
        lines=tuple(
            (
                line.style,
                line.label,
                tuple(Mark(x=x, y=y(mean), low=y(mean - reach), high=y(mean + reach)) for x, mean, reach in points),
            )
            for line, points in drawn
        ),
    )
