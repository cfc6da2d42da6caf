"""The report as one HTML file that needs no server, no script and no other file, and the figures and tables in its folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from addnorm.errors import UnknownName, warn
from addnorm.reporting.figure import ReportFiles
from addnorm.reporting.figures import all_figures, write_figures, write_tables
from addnorm.reporting.reader import Reader, reader_of
from addnorm.reporting.reading.run_table import TableChoices, TableReader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.report.reproduce import STUDY_FILE, reproduction
from addnorm.reporting.snapshot import Snapshot
from addnorm.statistics.run_tables import Source
from addnorm.statistics.run_tables.records import is_in_memory
from addnorm.store.files import write_atomic
from addnorm.store.questions.source import record_peek
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
    path: Source,
    *,
    out: str | Path | None = None,
    lang: Literal["en", "zh"] = "en",
    say: Callable[[str], None] = warn,
    **choices: Any,
) -> Written:
    """Write the report of a study, of measured checkpoints, or of a table of runs: one HTML file that opens in a browser, with
    figures and tables in the same folder.

    The report holds the results as they stand. Call `addnorm.inspect` first to include gradients and attention; the command
    `addnorm report` does so.

    Args:
        path: folder of a study, one into which `addnorm.inspect` has measured checkpoints, or a table of runs, as
            `addnorm.rank` takes it.
        out: the HTML file; if not given, `report/report.html` in the study's folder, or `NAME-report/report.html` beside a
            table.
        lang: language of the report.
        say: receives a message if this look at the results cannot be recorded; by default a Python warning.
        choices: of a table, what `addnorm.rank` takes: `references`, `margin`, `variants`, `exclude`, `columns`, `direction`,
            `unit`, `metric`, `together`; also `posterior=True` for the probabilities of the verdicts.

    Raises:
        InputError: the path is neither a study nor a table nor holds measured checkpoints; or a choice that is not one.
        DiskFull, JobError: a file cannot be written.

    Example:
        >>> written = addnorm.report("runs/first", out="report/first.html")
        >>> written.html.name
        'first.html'
        >>> rows = [{"variant": v, "seed": s, "loss": 2.5 + s / 100 - (v == "b") / 10} for v in "ab" for s in range(3)]
        >>> addnorm.report(rows, out="report/table.html").html.name
        'table.html'
    """
    reader = reader_of(path, _choices(choices))
    if isinstance(reader, TableReader):
        return write_report(reader.look(), _place(path) if out is None else Path(out), lang)
    if isinstance(reader, Reader):
        record_peek(reader.study, say)  # before anything is shown
    html = Path(out) if out is not None else Path(path) / "report" / "report.html"  # type: ignore[arg-type]
    return write_report(reader.look(), html, lang)


def _choices(given: Mapping[str, Any]) -> TableChoices:
    known = [field.name for field in fields(TableChoices)]
    for name in given:
        if name not in known:
            raise UnknownName("argument", name, known)
    named = {name: tuple(given[name]) for name in ("references", "variants", "exclude") if given.get(name)}
    metric = given.get("metric", ())
    named["metric"] = (metric,) if isinstance(metric, str | Mapping) else tuple(metric)
    return TableChoices(**{**given, **named})


def _place(table: Source) -> Path:
    """Path of the report of a table: beside it, since a folder of events or logs is read again as a whole."""
    if is_in_memory(table):
        return Path("table-report") / "report.html"
    path = Path(table)  # type: ignore[arg-type]
    return path.with_name(f"{path.name.partition('.')[0] or path.name}-report") / "report.html"


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
    left_out = tuple(of.name for of in all_figures(snapshot.source) if not of.is_on_demand and of.name not in names)
    return Written(html=html, files=tuple(files), left_out=left_out)
