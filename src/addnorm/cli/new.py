"""Copy a built-in study to a file of your own, to edit.

For example:
    addnorm new residual-scores --to mine.yaml
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import print_json
from addnorm.errors import InputError


@dataclass(frozen=True)
class Options:
    study: Annotated[str, tyro.conf.Positional]
    """Name of a built-in study; `addnorm list study` shows them."""
    to: Path | None = None
    """The file to write; STUDY.yaml in this folder if not given."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.study.built_in import study_source

    text = study_source(options.study)
    path = options.to or Path(f"{options.study}.yaml")
    if path.exists():
        raise InputError(
            f"--to: expected a new file, got {path}, which exists. Choose another file with --to, or remove it."
        )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--to: cannot write {path} ({error.strerror}). Choose another file with --to.") from error
    if options.json:
        print_json({"study": options.study, "file": str(path)})
    else:
        print(f"Wrote {path}. Edit it, then:\n  addnorm plan {path}\n  addnorm run {path} --out runs/{path.stem}")
    return 0
