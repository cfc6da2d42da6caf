"""Show what learned scalars learned, and what was only weight decay.

The result of a whole study is written to explain.json in its folder, from which the page shows it.

For example:
    addnorm explain runs/first
    addnorm explain runs/first --entries
    addnorm explain runs/first/v4m5-s0-1a2b3c4d --tables
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import page_width, print_json, print_message


@dataclass(frozen=True)
class Options:
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, or of one run; or `kuang-2025` for the values that Kuang (2025) prints."""
    norms: bool = False
    """Include the gains and shifts of norms."""
    entries: bool = False
    """Add a line per scalar, with its verdict over seeds."""
    tables: bool = False
    """Print, per layer, the vector with mean, std, min and max, as Kuang's (2025) appendix does."""
    plugin: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Files with mechanisms of your own that the runs use."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    import addnorm
    from addnorm.reporting.sections.scalars import table as scalars

    explained = addnorm.explain(options.target, norms=options.norms, plugins=options.plugin, say=print_message)
    if options.json:
        print_json(explained)
    else:
        print(
            scalars.tables(explained)
            if options.tables
            else scalars.text(explained, page_width(), entries=options.entries)
        )
    return 0
