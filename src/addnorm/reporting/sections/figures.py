"""All figures of a report, each with its numbers as a table."""

import base64
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.drawing.figure_style import drawable
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import phrases


class FiguresSection(Section):
    """The gallery of figures."""

    order = 170
    in_report = "end"
    needs_study = False

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        t = phrases(view.language)
        drawn = view.report.figures if view.report is not None else ()
        return {
            "figures": [
                {
                    "name": of.figure.name,
                    "caption": t.translation(f"figures.{of.figure.name}", of.figure.caption),
                    "data": base64.b64encode(of.svg).decode("ascii"),
                    "table": of.figure.table(of.rows, t),
                    "files": [path.name for path in of.files],
                }
                for of in drawn
            ],
            "english": drawable(view.language) != view.language,
        }
