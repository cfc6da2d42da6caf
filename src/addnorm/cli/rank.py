"""Rank a study's variants, and show which differences are more than noise.

For example:
    addnorm rank runs/first
    addnorm rank runs/first --reference base --margin 0.01
    addnorm rank kuang-2025
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import page_width, print_json, print_message


@dataclass(frozen=True)
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs; or a JSON file of published results; or `kuang-2025` for the table that Kuang (2025) prints."""
    reference: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Variants to compare with, in place of the study's own. May be given more than once."""
    margin: float | None = None
    """Nats per token below which a difference counts as none, in place of the study's own."""
    json: bool = False
    """Print JSON."""
    csv: bool = False
    """Print comma-separated values."""
    latex: bool = False
    """Print a LaTeX table (booktabs)."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.sections import ranking as tables

    ranking = addnorm.rank(
        options.dir, references=options.reference or None, margin=options.margin, say=print_message
    ).to_json()
    if options.json:
        print_json(ranking)
    elif options.csv:
        print(tables.csv(ranking), end="")
    elif options.latex:
        print(tables.latex(ranking), end="")
    else:
        print(tables.text(ranking, page_width()))
        if options.dir.is_dir():
            print(_next_commands(options.dir))
    return 0


def _next_commands(folder: Path) -> str:
    from addnorm.store import StudyFolder

    run = StudyFolder(folder).runs()[0]
    return (
        "Next:\n"
        f"  addnorm status {folder}     every run's state\n"
        f"  addnorm explain {folder}    what learned scalars learned, and what was only weight decay\n"
        f"  addnorm export {run.path}    weights and spec of one run\n"
        f"  addnorm rank {folder} --json    this ranking as JSON"
    )
