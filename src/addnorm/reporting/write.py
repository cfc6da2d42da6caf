"""The report as one HTML file that needs no server, no script and no other file, and the figures and tables beside it."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from addnorm.reporting.environment import environment
from addnorm.reporting.figures import FIGURES, Drawn, write_figures
from addnorm.reporting.method import method
from addnorm.reporting.pages import Pages, Snapshot, phrases
from addnorm.reporting.plots.style import drawable
from addnorm.reporting.reproduce import STUDY_FILE, reproduction
from addnorm.reporting.tables.figure import figure_table
from addnorm.store.files import make_folder, write_atomic
from addnorm.words import Phrases


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a report consists of."""

    html: Path
    files: tuple[Path, ...]
    """Figures, tables and the study file."""
    left_out: tuple[str, ...]
    """Figures that there were no numbers for."""


def write_report(snapshot: Snapshot, html: Path, language: str) -> Written:
    """Write a study's report.

    Args:
        snapshot: the study as it stands. Showing it is a look at its results, which the caller records.
        html: the report's file; figures and tables go into its folder.
        language: one of `LANGUAGES`.

    Raises:
        UnknownName: no such language.
        DiskFull, JobError: a file cannot be written.
    """
    t = phrases(language)
    make_folder(html.parent)
    figures = write_figures(snapshot, html.parent, language)
    again = reproduction(snapshot, html)
    pages = Pages()
    sections: dict[str, dict[str, Any]] = {
        "figures": {"figures": [_embedded(figure, t) for figure in figures], "english": drawable(language) != language},
        "method": {"method": method(snapshot, language)},
        "environment": {"environment": environment(snapshot)},
        "reproduce": {"reproduction": again, "study_file": STUDY_FILE},
    }
    more: dict[str, Markup] = {
        t(f"{name}.title"): pages.part(f"_{name}.html", snapshot, language, values) for name, values in sections.items()
    }
    write_atomic(html, pages.one_file(snapshot, language, more=more).encode())
    files = [path for figure in figures for path in figure.files]
    if again.file:
        write_atomic(html.parent / STUDY_FILE, again.file.encode())
        files.append(html.parent / STUDY_FILE)
    files += [path for path in (html.parent / "insight.csv", html.parent / "insight.tex") if path.exists()]
    drawn = {figure.name for figure in figures}
    return Written(html=html, files=tuple(files), left_out=tuple(name for name in FIGURES if name not in drawn))


def _embedded(figure: Drawn, t: Phrases) -> dict[str, object]:
    return {
        "name": figure.name,
        "data": base64.b64encode(figure.svg).decode("ascii"),
        "table": figure_table(figure.name, figure.rows, t),
        "files": [path.name for path in figure.files],
    }
