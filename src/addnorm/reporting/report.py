"""The report as one HTML file that needs no server, no script and no other file, and the figures and tables in its folder."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from addnorm.errors import warn
from addnorm.reporting.figure import ReportFiles
from addnorm.reporting.figures import all_figures, write_figures, write_tables
from addnorm.reporting.reader import Reader, reader_of
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.report.reproduce import STUDY_FILE, reproduction
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.files import write_atomic
from addnorm.store.rank import record_peek
from addnorm.words import phrases


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a report."""

    html: Path
    files: tuple[Path, ...]
    """Figures, tables and the study file."""
    left_out: tuple[str, ...]
    """Figures without numbers to draw."""


def report(
    path: str | Path,
    *,
    out: str | Path | None = None,
    lang: Literal["en", "zh"] = "en",
    say: Callable[[str], None] = warn,
) -> Written:
    """Write the report of a study, or of measured checkpoints: one HTML file that opens in a browser, with figures and tables
    in the same folder.

    The report holds the results as they stand. Call `addnorm.inspect` first to include gradients and attention; the command
    `addnorm report` does so.

    Args:
        path: folder of a study, or one into which `addnorm.inspect` has measured checkpoints.
        out: the HTML file; `report/report.html` in the study's folder if not given.
        lang: language of the report.
        say: receives a message if this look at the results cannot be recorded; by default a Python warning.

    Raises:
        InputError: the path is neither a study nor holds measured checkpoints.
        DiskFull, JobError: a file cannot be written.

    Example:
        >>> written = addnorm.report("runs/first", out="report/first.html")
        >>> written.html.name
        'first.html'
    """
    reader = reader_of(Path(path))
    if isinstance(reader, Reader):
        record_peek(reader.study, say)  # before anything is shown
    html = Path(out) if out is not None else Path(path) / "report" / "report.html"
    return write_report(reader.look(), html, lang)


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
    study = reproduction(snapshot, html).file if snapshot.is_study else None
    if study:
        write_atomic(html.parent / STUDY_FILE, study.encode())
        files.append(html.parent / STUDY_FILE)
    files += write_tables(snapshot, html.parent)
    names = {drawn.figure.name for drawn in figures}
    left_out = tuple(
        of.name for of in all_figures(of_study=snapshot.is_study) if not of.is_on_demand and of.name not in names
    )
    return Written(html=html, files=tuple(files), left_out=left_out)
