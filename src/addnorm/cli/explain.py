"""Tell what learned scalars learned, and what was only weight decay."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._output import print_json


@dataclass(frozen=True)
class Options:
    target: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, or of one run; or `source-003` for the values that source printed."""
    norms: bool = False
    """Also the norms' gains and shifts."""
    tables: bool = False
    """Print, per layer, the vector with mean, std, min and max, as source 003's appendix does."""
    plugin: tuple[str, ...] = ()
    """Files with the mechanisms of your own that the runs use."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.insight.explain import explain
    from addnorm.report.tables import scalars

    if options.plugin:
        from addnorm.lab.plugins import load_plugins

        load_plugins(options.plugin, Path.cwd())
    found = explain(options.target, norms=options.norms)
    if options.json:
        print_json(found)
    else:
        print(scalars.tables(found) if options.tables else scalars.text(found))
    return 0
