"""A figure as a section describes it, as it was drawn, and as a report shows it.

Below `view`, which carries the figures of a report that is being written, and `section`, which declares them.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from addnorm.reporting.formats.table import ResultTable
from addnorm.reporting.snapshot import Snapshot
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a report, written as `NAME.svg` and `NAME.png`."""

    name: str
    caption: str
    """In English; translations are `figures.NAME` of the catalogue."""
    # Picture, table and files of a figure are made of the same rows, read once: a run may log a step between two
    # reads, and the picture would then disagree with the numbers below it. Rows cross a pipe when figures are drawn
    # in two processes, so they hold plain values, arrays and frozen dataclasses only.
    rows: Callable[[Snapshot, Phrases], Rows]
    """Reads what is drawn."""
    # Numbers are looked for in values, not rows: a study whose runs wait has a row per variant and no
    # number in it.
    numbers: tuple[str, ...]
    """Keys of the rows; the figure is left out if none of them has a value."""
    draw: Callable[[Rows, str], "MatplotlibFigure"]
    """Draws rows in a language."""
    table: Callable[[Rows, Phrases], ResultTable]
    """The table below the figure."""
    files: Callable[[Snapshot, Rows], Mapping[str, str]] = lambda snapshot, rows: {}
    """Tables of the figure (CSV, LaTeX) by file name, in the same folder."""
    is_on_demand: bool = False
    """True for a figure of a further command's results, which a study may well lack."""


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """A figure that was written."""

    figure: Figure
    rows: Rows
    """The rows that it shows."""
    svg: bytes
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    """Models of the folder that it has no numbers of."""


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """Files that belong to a report."""

    html: Path
    figures: tuple[DrawnFigure, ...]
    """In the order in which the report shows them, which numbers them."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Section in which a figure stands, by the figure's name."""

    def shown_in(self, section: str, t: Phrases) -> list[dict[str, Any]]:
        """Number, caption, image, table and files of the figures that stand in a section, in their order.

        Args:
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
                "missing": drawn.missing,
            }
            for number, drawn in enumerate(self.figures, start=1)
            if self.sections.get(drawn.figure.name) == section
        ]
