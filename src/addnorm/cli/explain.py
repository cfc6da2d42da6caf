"""Show what learned scalars learned, and what was only weight decay.

The result of a whole study is written to explain.json in its folder, from which the page shows it.

For example:
    addnorm explain runs/first
    addnorm explain runs/first --entries
    addnorm explain runs/first/v4m5-s0-1a2b3c4d --tables
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from addnorm.cli._text import PluginOption, page_width, print_json, print_message, refuse


@dataclass(frozen=True)
class Options(PluginOption):
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, or of one run; or `kuang-2025` for the values that Kuang (2025) prints."""
    norms: bool = False
    """Include the gains and shifts of norms."""
    entries: bool = False
    """Add a line per scalar, with its verdict over seeds."""
    tables: bool = False
    """Print, per layer, the vector with mean, std, min and max, as Kuang's (2025) appendix does."""
    numbers: bool = False
    """Count how many of the learned numbers of joints can matter: seconds for each variant that has some."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.cli._plan_tables import learned_numbers
    from addnorm.reporting.sections.scalars import table as scalars

    if options.tables:
        refuse(options, "--tables", "entries")
    explained = addnorm.explain(options.target, norms=options.norms, plugins=options.plugin, say=print_message)
    counts = _counts(options.target) if options.numbers else {}
    if options.json:
        print_json(explained | ({"learned": counts} if options.numbers else {}))
    else:
        print(
            scalars.tables(explained)
            if options.tables
            else scalars.text(explained, page_width(), entries=options.entries)
        )
    if not options.json and (sentences := learned_numbers(counts)):
        print("\n" + sentences)
    return 0


def _counts(target: Path) -> dict[str, dict[str, Any]]:
    """The counts of every variant of a study's runs, of one run, or of the study whose printed values are explained."""
    from addnorm.insight.identifiable import counts_by_variant
    from addnorm.references import names_printed_results
    from addnorm.store import RunFolder, StudyFolder
    from addnorm.study.loading import load_study
    from addnorm.training.run_spec import run_spec

    if names_printed_results(target):
        return counts_by_variant(dict(load_study("residual-scores", profile="paper").variants))
    runs = StudyFolder(target).runs() if (target / "study.json").exists() else [RunFolder(target)]
    specs = [run_spec(run) for run in runs]
    return counts_by_variant({spec.variant: spec.model for spec in specs})
