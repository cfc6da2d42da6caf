"""A study's figures and tables as files: `NAME.svg`, `NAME.png`, and `.csv` and `.tex` where the section has them."""

from pathlib import Path
from typing import Any

from addnorm.reporting.drawing.figure_style import drawable
from addnorm.reporting.drawing.image import saved
from addnorm.reporting.drawing.two_processes import in_two_processes
from addnorm.reporting.figure import DrawnFigure, Figure, Rows
from addnorm.reporting.sections import sections
from addnorm.reporting.snapshot import Snapshot, SourceKind
from addnorm.store.files import make_folder, write_atomic
from addnorm.words import phrases


def all_figures(source: SourceKind = "study") -> list[Figure]:
    """Every figure that the report of a study can have, in its order; those of further commands' results last.

    Args:
        source: what it is of; those that a study can have unless given.
    """
    shown = [section for section in sections().values() if source in section.sources]
    figures = [figure for section in shown for figure in section().figures]
    return sorted(figures, key=lambda figure: figure.is_on_demand)


def write_figures(snapshot: Snapshot, folder: Path, language: str) -> list[DrawnFigure]:
    """Draw what the study has numbers for, and write figures and tables into the folder.

    Raises:
        DiskFull, JobError: the folder cannot be written.
    """
    make_folder(folder)
    # The labels' language may differ from the report's: without a font for Chinese, matplotlib would draw boxes. The
    # report then says that the labels are English (section `figures`).
    labels = drawable(language)
    figures = all_figures(snapshot.source)
    drawn = []
    # Pictures are drawn first and all files written afterwards, by this process alone: two processes that wrote would
    # leave a report half of one moment when one of them is killed.
    for figure, done in zip(
        figures, in_two_processes(lambda figure: _draw(snapshot, figure, labels), figures), strict=True
    ):
        if done is not None:
            rows, svg, contents = done
            files = tuple(folder / name for name in contents)
            for path, content in zip(files, contents.values(), strict=True):
                write_atomic(path, content)
            missing = _missing(snapshot, figure, rows)
            drawn.append(DrawnFigure(figure=figure, rows=rows, svg=svg, files=files, missing=missing))
    return drawn


def _missing(snapshot: Snapshot, figure: Figure, rows: Rows) -> tuple[str, ...]:
    """Models that a figure of models has no number of; none for a figure of other things."""
    with_numbers = [row for row in rows if any(_is_number(row.get(key)) for key in figure.numbers)]
    shown = {row.get("variant") for row in with_numbers}
    references = {row.get("reference") for row in with_numbers}  # of differences: shown, though no row is theirs
    return () if None in shown else tuple(model for model in snapshot.models if model not in shown | references)


def _draw(snapshot: Snapshot, figure: Figure, language: str) -> tuple[Rows, bytes, dict[str, bytes]] | None:
    """Rows, picture and files of a figure; None if the study has no numbers for it."""
    rows = figure.rows(snapshot, phrases(language))
    if not any(_is_number(row.get(key)) for row in rows for key in figure.numbers):
        return None
    picture = figure.draw(rows, language)
    svg = saved(picture, "svg")
    # The image keeps the places of the drawing, whose layout took as long as drawing it.
    picture.set_layout_engine("none")
    contents = {f"{figure.name}.svg": svg, f"{figure.name}.png": saved(picture, "png")}
    contents |= {name: text.encode() for name, text in figure.files(snapshot, rows).items()}
    return rows, svg, contents


def write_tables(snapshot: Snapshot, folder: Path) -> list[Path]:
    """Write the tables of sections that do not belong to one figure.

    Raises:
        DiskFull, JobError: the folder cannot be written.
    """
    written = []
    for section in (each for each in sections().values() if snapshot.source in each.sources):
        for name, text in section().files(snapshot).items():
            write_atomic(folder / name, text.encode())
            written.append(folder / name)
    return written


def _is_number(value: Any) -> bool:
    return value is not None and value != []
