"""Figures of a report as its page shows them."""

import base64
from typing import Any

from addnorm.reporting.view import ReportFiles
from addnorm.words import Phrases


def drawn_figures(report: ReportFiles, section: str, t: Phrases) -> list[dict[str, Any]]:
    """Number, caption, image, table and files of the figures that stand in a section, in their order.

    Args:
        report: the report's figures and their sections.
        section: its name.
        t: phrases of the report's language.
    """
    return [
        {
            "name": drawn.figure.name,
            "number": number,
            "caption": t.translation(f"figures.{drawn.figure.name}", drawn.figure.caption),
            "data": base64.b64encode(drawn.svg).decode("ascii"),
            "table": drawn.figure.table(drawn.rows, t),
            "files": [path.name for path in drawn.files],
        }
        for number, drawn in enumerate(report.figures, start=1)
        if report.sections.get(drawn.figure.name) == section
    ]
