"""Measured checkpoints side by side: on which text, what was not found in them, and every measure over the layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.layer_panel import LayerPanel, layer_panel, layer_values
from addnorm.reporting.measures import measures
from addnorm.reporting.reading.checkpoints import MeasuredCheckpoint, measured_checkpoints
from addnorm.reporting.reading.inspections import NAME as INSIGHT
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINTS_PAGE, View
from addnorm.store.measured import CHECKPOINT
from addnorm.words import Phrases, phrases


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """All measured checkpoints of a folder."""

    checkpoints: tuple[MeasuredCheckpoint, ...]
    has_one_text: bool
    """True if all were measured on the same tokens of the same text."""
    panels: tuple[LayerPanel, ...]
    """Each with a line per checkpoint."""


def side_by_side(snapshot: Snapshot, t: Phrases) -> SideBySide:
    """Compare the measured checkpoints of a folder."""
    checkpoints = measured_checkpoints(snapshot)
    texts = {(each.text.hash, each.text.seq, each.text.sequences) for each in checkpoints if each.text is not None}
    return SideBySide(checkpoints=checkpoints, has_one_text=len(texts) < 2, panels=_panels(checkpoints, t))


def _panels(checkpoints: Sequence[MeasuredCheckpoint], t: Phrases) -> tuple[LayerPanel, ...]:
    panels = (
        layer_panel(measure, [layer_values(each.end, measure.key) for each in checkpoints], t)
        for measure in measures().values()
    )
    return tuple(panel for panel in panels if panel is not None)


class CheckpointsSection(Section):
    """The comparison."""

    order = 105
    pages = (CHECKPOINTS_PAGE,)
    run_files = (INSIGHT, CHECKPOINT)
    sources = frozenset({"study", "checkpoints"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"compared": side_by_side(snapshot, phrases(view.language))}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return bool(snapshot.checkpoints)
