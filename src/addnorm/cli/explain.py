"""Tell what learned scalars learned, and what was only weight decay.

What is said of a whole study is kept in its folder as explain.json, which the page shows.

For example:
    addnorm explain runs/first
    addnorm explain runs/first/v4m5-s0-1a2b3c4d --tables
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._output import print_json
from addnorm.errors import JobError


@dataclass(frozen=True)
class Options:
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, or of one run; or `kuang-2025` for the values that Kuang (2025) prints."""
    norms: bool = False
    """Also the norms' gains and shifts."""
    tables: bool = False
    """Print, per layer, the vector with mean, std, min and max, as Kuang's (2025) appendix does."""
    plugin: tuple[str, ...] = ()
    """Files with the mechanisms of your own that the runs use."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.insight.explain import explain, keep_explained
    from addnorm.reporting.sections.scalars import table as scalars

    if options.plugin:
        from addnorm.study.plugins import load_plugins

        load_plugins(options.plugin, Path.cwd())
    found = explain(options.target, norms=options.norms)
    if (options.target / "study.json").is_file() and not options.norms:
        try:
            keep_explained(options.target, found)
        except JobError as error:  # a folder that cannot be written can still be explained
            print(f"addnorm: the page will not show these verdicts: {error}", file=sys.stderr)
    if options.json:
        print_json(found)
    else:
        print(scalars.tables(found) if options.tables else scalars.text(found))
    return 0
