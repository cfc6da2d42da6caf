"""Panels of a model's page: one measure over the layers each, at the start and at the end of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.numbers import mean
from addnorm.reporting.layer_panel import LayerPanel, layer_panel, layer_values
from addnorm.reporting.measure import LayerMeasure
from addnorm.reporting.measures import measures
from addnorm.reporting.reading.checkpoints import missing_in
from addnorm.reporting.reading.inspections import NAME
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.words import Phrases, phrases


@dataclass(frozen=True, kw_only=True)
class Insight:
    """Measurements of a model's inspected runs, or of a checkpoint."""

    panels: tuple[LayerPanel, ...]
    """Each with a line per moment."""
    moments: tuple[str, ...]
    """`start` and `end`; a checkpoint has no start."""
    seeds: tuple[int, ...]
    """Seeds whose runs were inspected; panels are means over them. None for a checkpoint."""
    missing: tuple[tuple[str, Any], ...]
    """Parts not found in the model of a run that others wrote: sentence and its note. A checkpoint's page has them above."""


def insight(snapshot: Snapshot, variant: str, language: str = "en") -> Insight:
    """The variant's inspected runs, or the checkpoint, layer by layer."""
    t = phrases(language)
    is_run = variant in snapshot.variants
    moments = ("start", "end") if is_run else ("end",)
    contents, seeds = list[Mapping[str, Any]](), list[int]()
    for place in snapshot.measured_in(variant):
        content = content_of(snapshot, f"{place.folder}/{NAME}")
        if all(isinstance(content.get(moment), dict) for moment in moments):
            contents.append(content)
            seeds += [] if place.seed is None else [place.seed]
    panels = (_panel(measure, contents, moments, t) for measure in measures().values())
    return Insight(
        panels=tuple(panel for panel in panels if panel is not None),
        moments=moments,
        seeds=tuple(sorted(seeds)),
        missing=missing_in(contents[0]) if contents and is_run else (),
    )


def _panel(
    measure: LayerMeasure, contents: Sequence[Mapping[str, Any]], moments: Sequence[str], t: Phrases
) -> LayerPanel | None:
    lines = []
    for moment in moments:
        of_runs = [layer_values(content[moment], measure.key) for content in contents]
        layers = {layer for of in of_runs for layer in of}
        lines.append({layer: mean([of[layer] for of in of_runs if layer in of]) for layer in layers})
    return layer_panel(measure, lines, t)
