"""Write a study's report: one HTML file that opens by double-click, with figures and tables beside it.

The ranking with its intervals, curves, learned scalars, costs, layer-by-layer measures, the method with the exact statistics,
the environment, the plan's hash and the commands that reproduce it. Runs that have not been inspected are inspected first.

For example:
    addnorm report runs/first
    addnorm report runs/first --lang zh --out paper/report.html
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from addnorm.cli._output import print_json
from addnorm.errors import InputError, JobError


@dataclass(frozen=True)
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs."""
    out: Path | None = None
    """The HTML file; DIR/report/report.html if not given. Figures and tables go into its folder."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""
    inspect: bool = True
    """Measure gradients and attention of the runs that lack them, which takes seconds to minutes."""
    plugin: tuple[str, ...] = ()
    """Files with the mechanisms of your own that the runs use; only needed to inspect them."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.reporting.reader import Reader
    from addnorm.reporting.report import write_report

    reader = Reader(options.dir)
    skipped = _inspected(options) if options.inspect else {}
    try:
        reader.study.record_look()  # before it is shown, so that no shown result is unrecorded
    except JobError as error:
        print(
            f"addnorm: this look is not recorded, so seeds added later will not be marked as added after it: {error}",
            file=sys.stderr,
        )
    written = write_report(reader.look(), options.out or options.dir / "report" / "report.html", options.lang)
    if options.json:
        print_json(
            {
                "report": str(written.html),
                "files": [str(path) for path in written.files],
                "left_out": list(written.left_out),
                "not_inspected": skipped,
            }
        )
    else:
        print(f"Wrote {written.html} and, beside it, {len(written.files)} figures and tables.")
        if written.left_out:
            print(f"Without numbers, so left out: {', '.join(written.left_out)}.")
    return 0


def _inspected(options: Options) -> dict[str, str]:
    """Runs that could not be inspected, with the reason; the report is written without them."""
    from addnorm.insight.flow import inspect
    from addnorm.study.plugins import load_plugins

    load_plugins(options.plugin, Path.cwd())
    try:
        skipped: dict[str, str] = inspect(options.dir, say=lambda text: print(text, file=sys.stderr))["skipped"]
    except InputError as error:  # not one run can be
        skipped = {"every run": str(error)}
    for run, reason in skipped.items():
        print(f"addnorm: not inspected: {run}: {reason}", file=sys.stderr)
    return skipped
