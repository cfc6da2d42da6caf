"""Show a study on a page that follows its runs: state, curves, ranking, scalars, cost, failures.

The page only reads, and it answers this machine alone. `--host` lets other machines in, with a token that is part of the
address that is printed.

For example:
    addnorm watch runs/first
    addnorm watch runs/first --host 0.0.0.0 --port 9000
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import print_json
from addnorm.errors import InputError


@dataclass(frozen=True)
class Options:
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for every one of this machine."""
    port: int | None = None
    """Port to listen on; 8321 if not given, or any free one if that is taken."""
    token: str | None = None
    """What visitors from other machines must know; made if not given. Others can see it in the list of processes."""
    json: bool = False
    """Print the page's address as JSON."""


def command(options: Options) -> int:
    from addnorm.web.serve import page

    if options.port is not None and not 0 <= options.port < 65536:
        raise InputError(f"--port must be between 0 and 65535, got {options.port}. 0 means any free one.")
    if options.token is not None and len(options.token) < 8:
        raise InputError(
            f"--token must be at least 8 characters long, got {len(options.token)}. Leave it out to have one made."
        )
    ready = page(options.dir, host=options.host, port=options.port, token=options.token)
    if options.json:
        print_json({"url": ready.url})
    else:
        print(f"The page: {ready.url}\nCtrl-C stops it; the runs are not affected.", flush=True)
    ready.serve()
    return 0
