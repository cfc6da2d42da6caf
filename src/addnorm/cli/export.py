"""Write a finished run's weights (safetensors) and spec (JSON) into a folder of its own.

For example:
    addnorm export runs/first/base-s0-1a2b3c4d --to base
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import print_json


@dataclass(frozen=True)
class Options:
    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run, such as runs/first/base-s0-1a2b3c4d."""
    to: Path | None = None
    """Folder to write; exported/RUN if not given."""
    plugin: tuple[str, ...] = ()
    """Files with mechanisms of your own that the run uses."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.store import RunFolder
    from addnorm.study.plugins import load_plugins
    from addnorm.training.export import export_run

    load_plugins(options.plugin, Path.cwd())
    to = options.to or Path("exported") / options.run.name
    export_run(RunFolder(options.run), to)
    if options.json:
        print_json({"run": options.run.name, "folder": str(to), "files": sorted(path.name for path in to.iterdir())})
    else:
        plugins = f", plugins={list(options.plugin)}" if options.plugin else ""
        print(f"Wrote {to}. To use it:\n  import addnorm\n  model = addnorm.load({str(to)!r}{plugins})")
    return 0
