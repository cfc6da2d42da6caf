"""`addnorm.report`: a study's report as one HTML file, with figures and tables beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from addnorm.errors import warn
from addnorm.reporting.pages import Reader
from addnorm.reporting.write import Written, write_report
from addnorm.store.rank import record_peek


def report(
    path: str | Path,
    *,
    out: str | Path | None = None,
    lang: Literal["en", "zh"] = "en",
    say: Callable[[str], None] = warn,
) -> Written:
    """Write a study's report: one HTML file that opens in a browser, with figures and tables in the same folder.

    The report holds the results as they stand. Call `addnorm.inspect` first to include gradients and attention; the command
    `addnorm report` does so.

    Args:
        path: folder of a study.
        out: the HTML file; `report/report.html` in the study's folder if not given.
        lang: language of the report.
        say: receives a message if this look at the results cannot be recorded; by default a Python warning.

    Raises:
        InputError: the path is not a study.
        DiskFull, JobError: a file cannot be written.

    Example:
        >>> written = addnorm.report("runs/first", out="report/first.html")
        >>> written.html.name
        'first.html'
    """
    reader = Reader(Path(path))
    record_peek(reader.study, say)  # before anything is shown
    html = Path(out) if out is not None else Path(path) / "report" / "report.html"
    return write_report(reader.look(), html, lang)
