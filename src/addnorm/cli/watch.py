"""Serve a live page of a study, of all studies of a folder, of measured checkpoints, or of a table of runs.

A study's page shows states, curves, ranking, scalars, cost, logs and failures. That of a table shows the answer, the ranking,
the numbers of all runs and, where it has steps, curves; it follows the file while other code writes it.

The page is served to this machine alone. With `--host`, other machines have access with a token, which is part of the printed
address. The page only reads; notes and tags, its one exception, are kept in `notes.jsonl` in the study's folder and can be
written from this machine alone unless `--notes` says otherwise.

For example:
    addnorm watch runs/first
    addnorm watch runs
    addnorm watch results.csv --columns variant=model,loss=val_loss
    addnorm watch runs/first --host 0.0.0.0 --port 9000
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from addnorm.cli._rank.choices import TableOptions
from addnorm.cli._text import print_json
from addnorm.errors import InputError
from addnorm.words import spoken


@dataclass(frozen=True)
class Options(TableOptions):
    dir: Annotated[Path, tyro.conf.Positional]
    """Folder of a study's runs, one into which `addnorm inspect CHECKPOINT --to DIR` has written, a folder of studies, or a
    table of runs that other code trained, as `addnorm rank` reads it."""
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all addresses of this machine."""
    port: int | None = None
    """Port to listen on; 8321 if not given, or any free port if that is in use."""
    token: str | None = None
    """Token for other machines; generated if not given. A token given here is visible in the list of processes."""
    notes: Literal["local", "always", "never"] = "local"
    """Visitors who can write notes and tags: `local` on a page for this machine alone, `always` by whoever has the token, or
    `never`."""


def command(options: Options) -> int:
    from addnorm.web.serve import page

    if options.port is not None and not 0 <= options.port < 65536:
        raise InputError(f"--port: expected a number between 0 and 65535, got {options.port}. 0 selects a free port.")
    if options.token is not None and len(options.token) < 8:
        raise InputError(
            f"--token: expected at least 8 characters, got {len(options.token)}. Without --token, one is generated."
        )
    ready = page(
        options.dir,
        host=options.host,
        port=options.port,
        token=options.token,
        notes=options.notes,
        table=options.choices(),
    )
    if options.json:
        print_json({"url": ready.url})
    else:
        print(spoken()("run.serving", address=ready.url), flush=True)
    ready.serve()
    return 0
