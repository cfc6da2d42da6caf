"""Write the report of a study or of a table of runs: one HTML file that opens in a browser, with figures and tables beside it.

The report holds the ranking with intervals, curves, learned scalars, costs, layer-by-layer measures, the method with its
statistics, the environment, the plan's hash and the commands that reproduce it. Runs without measures are inspected first.
Checkpoints that were measured into the folder (`addnorm inspect CHECKPOINT --text FILE --to DIR`) are shown side by side.

For example:
    addnorm report runs/first
    addnorm report runs/first --lang zh --out paper/report.html
    addnorm report runs/first --pdf
    addnorm report runs/first --site public
    addnorm report results.csv --columns variant=model,loss=val_loss
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from addnorm.cli._rank.choices import TableOptions
from addnorm.cli._text import print_json, print_line, print_message, refuse
from addnorm.errors import InputError
from addnorm.reporting.drawing.browser import find_browser, print_pdf
from addnorm.reporting.reading.run_table import TableChoices
from addnorm.words import spoken, translated


@dataclass(frozen=True)
class Options(TableOptions):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs or of measured checkpoints, or a table of runs that other code trained, as `addnorm rank` reads
    it."""
    out: Path | None = None
    """The HTML file; if not given, DIR/report/report.html, or NAME-report/report.html beside a table. Figures and tables go
    into its folder."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    inspect: bool = True
    """Measure gradients and attention of runs without these measures, which takes seconds to minutes."""
    site: Path | None = None
    """Write every page of the study as files into this folder instead, in English and Chinese, for any web space: no server
    program, no script. It opens from a disk too."""
    plugin: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Files with mechanisms of your own that the runs use; needed only to inspect them."""
    pdf: bool = False
    """Print the report to a PDF of the same name as well. Needs Chromium, Chrome or Edge."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.reader import Reader, reader_of

    if options.site is not None:
        refuse(options, "--site", "out", "lang", "pdf")
    browser = find_browser() if options.pdf else None  # its absence is reported before anything is measured
    choices = options.choices()
    is_study = isinstance(
        reader_of(options.dir, choices), Reader
    )  # any other folder is reported before anything is measured
    not_inspected = _inspect_runs(options) if options.inspect and is_study else {}
    if options.site is not None:
        return _write_site(options.dir, options.site, choices, as_json=options.json)
    report = addnorm.report(
        options.dir,
        out=options.out,
        lang=options.lang,
        say=print_message,
        **vars(choices),
    )
    pdf = None if browser is None else print_pdf(browser, report.html)
    if options.json:
        print_json(
            {
                "report": str(report.html),
                "pdf": None if pdf is None else str(pdf),
                "files": [str(path) for path in report.files],
                "left_out": list(report.left_out),
                "not_inspected": not_inspected,
            }
        )
    else:
        print(translated(f"Wrote {report.html} and, beside it, {len(report.files)} figures and tables."))
        if pdf is not None:
            print(translated(f"Wrote {pdf}."))
        if report.left_out:
            print(translated(f"Left out for lack of numbers: {', '.join(report.left_out)}."))
    return 0


def _write_site(folder: Path, to: Path, choices: TableChoices, *, as_json: bool) -> int:
    from addnorm.reporting.site import write_site

    site = write_site(folder, to, table=choices, say=print_message)
    if as_json:
        print_json({"site": str(site.index), "files": [str(path) for path in site.files]})
    else:
        print(spoken()("printed.site", count=len(site.files), index=site.index))
    return 0


def _inspect_runs(options: Options) -> dict[str, str]:
    """Inspect the runs. Returns those that could not be inspected, with the reason; the report is written without them."""
    import addnorm
    from addnorm.reporting.reading.inspections import is_inspected
    from addnorm.store import StudyFolder

    runs = StudyFolder(options.dir).runs()
    if runs and all(map(is_inspected, runs)):
        return {}
    try:
        measured = addnorm.inspect(options.dir, plugins=options.plugin, say=print_line)
    except InputError as error:  # no run can be inspected
        not_inspected = {"every run": str(error)}
    else:
        not_inspected = measured["skipped"]
    for run, reason in not_inspected.items():
        print_message(f"{run} was left out: {reason}")
    return not_inspected
