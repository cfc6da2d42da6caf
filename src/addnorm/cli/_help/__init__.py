"""The help of a command in the terminal's language, made from what its parser is made from: its docstring and its `Options`.

tyro's own help is English, and counts a Chinese letter as one column. Here the English is the docstrings of the command and
of its fields, and the catalogue has their translations: `command.NAME` (the first sentence), `details.NAME` (the further
paragraphs) and `option.NAME.FIELD`, or `option.any.FIELD` of a field that several commands have.
"""

import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from rich.cells import cell_len

from addnorm.cli._text import page_width
from addnorm.docstrings import field_docstrings
from addnorm.reporting.formats.text_table import filled
from addnorm.words import LANGUAGES, Phrases, spoken

_COLUMN = 24
"""Column in which the texts of options begin."""
_PAGE = 100
"""Columns of the page at most: longer lines are hard to read."""
_METAVARS = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}
_Row = tuple[str, str]


def command_help(name: str, docstring: str, options: type) -> str:
    """The help of a command.

    Args:
        name: of the command.
        docstring: of its module.
        options: its dataclass.
    """
    t, width = spoken(), min(page_width(), _PAGE)
    rows = list(_rows(name, options, t))
    places = [invocation for invocation, _ in rows if not invocation.startswith("-")]
    own = {invocation.split()[0] for invocation, _ in rows}
    rows += [("-h, --help", t("help.help"))]
    rows += [] if "--lang" in own else [(f"--lang {{{','.join(LANGUAGES)}}}", t("help.language"))]
    parts = [t("help.usage", command=" ".join((f"addnorm {name}", *places))), *_paragraphs(name, docstring, t, width)]
    for title, is_option in (("help.arguments", False), ("help.options", True)):
        shown = [row for row in rows if row[0].startswith("-") is is_option]
        if shown:
            parts.append("\n".join((t(title), *(_line(row, width) for row in shown))))
    return "\n\n".join(parts)


def _paragraphs(name: str, docstring: str, t: Phrases, width: int) -> Iterator[str]:
    """The docstring's paragraphs; a block of commands stays as it is, below a heading."""
    translated = iter([t.translation(f"command.{name}", ""), *t.translation(f"details.{name}", "").split("\n\n")])
    for paragraph in cleandoc(docstring).split("\n\n"):
        rest = paragraph.split("\n")[1:]
        if rest and all(line.startswith("    ") for line in rest):
            yield "\n".join((t("help.example"), *(line[2:] for line in rest)))
        else:
            yield filled(next(translated, "") or " ".join(paragraph.split()), width)


def _rows(name: str, options: type, t: Phrases) -> Iterator[_Row]:
    """The invocation and the text of each option, those of a group within the options included."""
    hints, texts = get_type_hints(options, include_extras=True), field_docstrings(options)
    # Its own options before those that many commands have.
    for field in sorted(fields(options), key=lambda field: field.name not in vars(options)["__annotations__"]):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _rows(name, hint, t)  # type: ignore[arg-type]
            continue
        english = " ".join(texts[field.name].split())
        text = t.translation(f"option.{name}.{field.name}", t.translation(f"option.any.{field.name}", english))
        yield _written(field, hint), text + _default(field, t)


def _written(field: "Field[Any]", hint: Any) -> str:
    kind, marks = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    word = field.name.rstrip("_").replace("_", "-")
    if tyro.conf.Positional in marks:
        several = f"{word.upper()} ..." if get_origin(kind) is tuple else word.upper()
        return several if field.default is MISSING and field.default_factory is MISSING else f"[{several}]"
    names = [f"--{getattr(mark, 'name', None) or word}" for mark in marks[-1:]] or [f"--{word}"]
    names += [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
    if kind is bool:
        return ", ".join((*names, f"--no-{word}") if field.default else names)
    return ", ".join(f"{each} {_metavar(kind)}" for each in names)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{{{','.join(map(str, get_args(kind)))}}}"
    if get_origin(kind) is tuple:
        return " ".join(_metavar(each) for each in get_args(kind) if each is not ...)
    return _METAVARS[kind]


def _default(field: "Field[Any]", t: Phrases) -> str:
    """The default that an option has, where it says more than that there is none."""
    value = field.default
    if value in (MISSING, None, "", ()) or value is False:
        return ""
    if value is True:
        value = f"--{field.name}"
    return t("help.default", value=" ".join(map(str, value)) if isinstance(value, tuple) else value)


def _line(row: _Row, width: int) -> str:
    """An option and its text, beside each other or, behind a long one, below each other."""
    start, indent = f"  {row[0]}", " " * _COLUMN
    lines = filled(row[1], max(width - _COLUMN, _COLUMN)).split("\n")
    if cell_len(start) + 2 > _COLUMN:
        lines.insert(0, "")
    return "\n".join((start.ljust(_COLUMN) + lines[0], *(indent + line for line in lines[1:]))).rstrip()
