"""Copy a built-in study to a file of your own, to edit; or begin with a small blank one.

For example:
    addnorm new residual-scores --to mine.yaml
    addnorm new --blank --to mine.yaml
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.cli._text import print_json
from addnorm.errors import InputError
from addnorm.words import command_line


@dataclass(frozen=True)
class Options:
    study: Annotated[str | None, tyro.conf.Positional] = None
    """Name of a built-in study; `addnorm list study` shows them."""
    blank: bool = False
    """Write a small study with two variants in place of a built-in one."""
    to: Path | None = None
    """The file to write; STUDY.yaml (study.yaml with --blank) in this folder if not given."""
    json: bool = False
    """Print JSON."""


def command(options: Options) -> int:
    from addnorm.study.built_in import blank_study, study_names, study_source

    if (options.study is None) != options.blank:
        raise InputError(
            f"new: expected either the name of a built-in study or --blank, got {'both' if options.blank else 'neither'}. "
            f"Built-in studies: {', '.join(study_names())}."
        )
    path = options.to or Path(f"{options.study or 'study'}.yaml")
    text = blank_study(path.stem) if options.study is None else study_source(options.study)
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
        print(
            f"Wrote {path}. Edit it, then:\n  {command_line('addnorm', 'plan', path)}\n"
            f"  {command_line('addnorm', 'run', path, '--out', Path('runs') / path.stem)}"
        )
    return 0
