"""Rank a study's variants, and say which differences are more than noise.

For example:
    addnorm rank runs/first
    addnorm rank runs/first --reference base --margin 0.01
    addnorm rank kuang-2025
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from addnorm.cli._output import print_json
from addnorm.errors import JobError
from addnorm.references import names_printed_results

if TYPE_CHECKING:
    from addnorm.statistics import Ranking


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
    from addnorm.reporting.sections import ranking as tables

    found = _ranking(options).to_json()
    if options.json:
        print_json(found)
    elif options.csv:
        print(tables.csv(found), end="")
    elif options.latex:
        print(tables.latex(found), end="")
    else:
        print(tables.text(found))
        if options.dir.is_dir():
            print(_go_on(options.dir))
    return 0


def _go_on(folder: Path) -> str:
    from addnorm.store import StudyFolder

    run = StudyFolder(folder).runs()[0]
    return (
        "To go on:\n"
        f"  addnorm status {folder}     every run's state\n"
        f"  addnorm explain {folder}    what learned scalars learned, and what was only weight decay\n"
        f"  addnorm export {run.path}    weights and spec of one run\n"
        f"  addnorm rank {folder} --json    everything above, for programs"
    )


def _ranking(options: Options) -> "Ranking":
    from addnorm.store.results import ranking, ranking_of_published

    overrides: dict[str, object] = {}
    if options.reference:
        overrides["references"] = options.reference
    if options.margin is not None:
        overrides["margin"] = options.margin
    if names_printed_results(options.dir) or options.dir.suffix == ".json":
        return ranking_of_published(options.dir, overrides)
    from addnorm.store import StudyFolder

    folder = StudyFolder(options.dir)
    found = ranking(folder, overrides)
    try:
        folder.record_look()
    except JobError as error:
        print(
            f"addnorm: this look is not recorded, so seeds added later will not be marked as added after it: {error}",
            file=sys.stderr,
        )
    return found
