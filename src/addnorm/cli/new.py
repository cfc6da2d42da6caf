"""Copy a built-in study to a file of your own, to edit; begin with a blank one, or with a mechanism of your own.

For example:
    addnorm new residual-scores --to mine.yaml
    addnorm new --blank --to mine.yaml
    addnorm new --mechanism residual momentum.py
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.cli._text import JsonOption, print_json
from addnorm.errors import InputError, UnknownName
from addnorm.study.mechanism_template import EXAMPLES, mechanism_source
from addnorm.words import command_line, spoken, translated


@dataclass(frozen=True)
class Options(JsonOption):
    name: Annotated[str | None, tyro.conf.Positional] = None
    """Name of a built-in study, which `addnorm list study` shows; with --mechanism, the file to write."""
    blank: bool = False
    """Write a small study with two variants in place of a built-in one."""
    mechanism: str | None = None
    """Write a mechanism of this room, such as residual, to edit: it passes the contract as it stands."""
    to: Path | None = None
    """The file to write; STUDY.yaml (study.yaml with --blank) in this folder if not given."""


def command(options: Options) -> int:
    from addnorm.study.built_in import blank_study, study_names, study_source

    if options.mechanism is not None:
        return _new_mechanism(options)
    if (options.name is None) != options.blank:
        raise InputError(
            f"new: expected either the name of a built-in study or --blank, got {'both' if options.blank else 'neither'}. "
            f"Built-in studies: {', '.join(study_names())}."
        )
    path = options.to or Path(f"{options.name or 'study'}.yaml")
    text = blank_study(path.stem) if options.name is None else study_source(options.name)
    _write(path, text)
    if options.json:
        print_json({"study": options.name, "file": str(path)})
    else:
        print(translated(f"Wrote {path}. Edit it, then:"))
        print(f"  {command_line('addnorm', 'plan', path)}")
        print(f"  {command_line('addnorm', 'run', path, '--out', Path('runs') / path.stem)}")
    return 0


def _new_mechanism(options: Options) -> int:
    room = options.mechanism or ""
    if room not in MECHANISM_ROOMS:
        raise UnknownName("room of mechanisms", room, MECHANISM_ROOMS)
    given = options.to or (None if options.name is None else Path(options.name))
    if given is None or options.blank or (options.to and options.name):
        raise InputError(
            "new: expected one file to write with --mechanism, such as addnorm new --mechanism residual momentum.py."
        )
    path = given if given.suffix else given.with_suffix(".py")
    if path.suffix != ".py" or not re.fullmatch(r"[a-z][a-z0-9_]*", path.stem):
        raise InputError(
            f"new: expected a Python file named by lower-case letters, digits and _, got {path.name!r}. The mechanism's kind "
            "is the file's name."
        )
    for home in ROOMS.values():
        if path.stem in home.kinds():
            raise InputError(f"new: '{path.stem}' is already the name of a {home.name}. Choose another file name.")
    _write(path, mechanism_source(room, path))
    if options.json:
        print_json({"mechanism": room, "kind": path.stem, "file": str(path)})
    else:
        t = spoken()
        print(t("new.mechanism", file=path, room=room, kind=EXAMPLES[room]))
        print(f"  {command_line('addnorm', 'list', room, '--plugin', path)}\n  plugins: [{path.name}]")
        print(t("new.laws"))
    return 0


def _write(path: Path, text: str) -> None:
    if path.exists():
        raise InputError(
            f"--to: expected a new file, got {path}, which exists. Choose another file with --to, or remove it."
        )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--to: cannot write {path} ({error.strerror}). Choose another file with --to.") from error
