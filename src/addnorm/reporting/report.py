"""The report as one HTML file that needs no server, no script and no other file, and the figures and tables beside it."""

from dataclasses import dataclass
from pathlib import Path

from addnorm.reporting.figures import all_figures, write_figures, write_tables
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.reproduce import STUDY_FILE, reproduction
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import ReportFiles
from addnorm.store.files import write_atomic
from addnorm.words import phrases


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
        UnknownName: unknown language.
        DiskFull, JobError: a file cannot be written.
    """
    phrases(language)
    figures = write_figures(snapshot, html.parent, language)
    report = ReportFiles(html=html, figures=tuple(figures))
    write_atomic(html, Pages().one_file(snapshot, language, report=report).encode())
    files = [path for drawn in figures for path in drawn.files]
    study = reproduction(snapshot, html).file
    if study:
        write_atomic(html.parent / STUDY_FILE, study.encode())
        files.append(html.parent / STUDY_FILE)
    files += write_tables(snapshot, html.parent)
    names = {drawn.figure.name for drawn in figures}
    left_out = tuple(of.name for of in all_figures() if not of.is_on_demand and of.name not in names)
    return Written(html=html, files=tuple(files), left_out=left_out)
