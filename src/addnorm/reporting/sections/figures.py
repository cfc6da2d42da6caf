"""Figures of a report inside the models: those of sections that stand in each model's part."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.drawing.figure_style import drawable
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import phrases


class FiguresSection(Section):
    """Figures that show all models side by side, layer by layer."""

    order = 115
    sources = frozenset({"study", "checkpoints", "table"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {
            "figures": [] if view.report is None else view.report.shown_in(self.name, phrases(view.language)),
            "english": drawable(view.language) != view.language,
        }
