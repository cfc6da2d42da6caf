"""The help of a command in the terminal's language, made from what its parser is made from: its docstring and its `Options`.

tyro's own help is English, and counts a Chinese letter as one column. Here the English is the docstrings of the command and
of its fields, and the catalogue has their translations: `command.NAME` (the first sentence), `details.NAME` (the further
paragraphs) and `option.NAME.FIELD`, or `option.any.FIELD` of a field that several commands have.
"""

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from rich.cells import cell_len

from addnorm.cli._text import page_width
from addnorm.docstrings import field_docstrings
from addnorm.errors import InputError, UnknownName
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
    for field, hint, text in _fields(options):
        english = " ".join(text.split())
        sentence = t.translation(f"option.{name}.{field.name}", t.translation(f"option.any.{field.name}", english))
        yield _written(field, hint), sentence + _default(field, t)


def _fields(options: type) -> "Iterator[tuple[Field[Any], Any, str]]":
    """Field, type and docstring of each option; its own before those that many commands have."""
    hints, texts = get_type_hints(options, include_extras=True), field_docstrings(options)
    for field in sorted(fields(options), key=lambda field: field.name not in vars(options)["__annotations__"]):
        if is_dataclass(hint := hints[field.name]):
            yield from _fields(hint)  # type: ignore[arg-type]
        else:
            yield field, hint, texts[field.name]


def _written(field: "Field[Any]", hint: Any) -> str:
    kind, names, positional = _spelled(field, hint)
    if positional:
        several = f"{names[0]} ..." if get_origin(kind) is tuple else names[0]
        return several if _is_required(field) else f"[{several}]"
    if kind is bool:
        return ", ".join(names)
    return ", ".join(f"{each} {_metavar(kind)}" for each in names)


def _spelled(field: "Field[Any]", hint: Any) -> tuple[Any, list[str], bool]:
    """Type of an option's value, the names that it is given by, and whether it is an argument without a name."""
    kind, marks = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    word = field.name.rstrip("_").replace("_", "-")
    if tyro.conf.Positional in marks:
        return kind, [word.upper()], True
    names = [f"--{getattr(mark, 'name', None) or word}" for mark in marks[-1:]] or [f"--{word}"]
    names += [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
    return kind, [*names, f"--no-{word}"] if kind is bool and field.default else names, False


def _is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{{{','.join(map(str, get_args(kind)))}}}"
    if get_origin(kind) is tuple:
        return " ".join(_metavar(each) for each in get_args(kind) if each is not ...)
    return _METAVARS[kind]


def _default(field: "Field[Any]", t: Phrases) -> str:
    """The default of an option; empty for one that means "not given"."""
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


def require_readable(name: str, options: type, words: Sequence[str]) -> None:
    """Say in one line what no parser can read; tyro says it in English, in a box.

    Raises:
        InputError: an unknown option, one without a value or with one of another type, or too many or too few arguments.
    """
    spelled = [(field, *_spelled(field, hint)) for field, hint, _ in _fields(options)]
    known = {each: kind for _, kind, names, positional in spelled if not positional for each in names}
    places = [(names[0], kind, field) for field, kind, names, positional in spelled if positional]
    given, several, rest = 0, False, [*reversed(words)]
    while rest:
        option, mark, value = rest.pop().partition("=")
        if not option.startswith("-"):
            given += 1
            continue
        kind = known.get(option.replace("_", "-"), MISSING)
        if kind is MISSING:
            raise UnknownName("option", option, known)
        if kind is bool:
            continue
        if not mark and (not rest or rest[-1].startswith("--")):
            raise InputError(f"{option}: expected a value, got none.")
        value = value if mark else rest.pop()
        several |= get_origin(kind) is tuple
        if get_origin(kind) is Literal and value not in map(str, get_args(kind)):
            choices = ", ".join(sorted(map(str, get_args(kind))))
            raise InputError(f"{option}: no value {value!r}. Known: {choices}.")
        if kind is int and not _is_number(value, int):
            raise InputError(f"{option}: expected a whole number, got {value!r}.")
        if kind is float and not _is_number(value, float):
            raise InputError(f"{option}: expected a number, got {value!r}.")
    if several:  # which of the words that follow such an option are its own, only the parser knows
        return
    required = [place for place, _, field in places if _is_required(field)]
    if given < len(required):
        raise InputError(f"expected {required[given]}, got none. See `addnorm {name} --help`.")
    if given > len(places) and not any(get_origin(kind) is tuple for _, kind, _ in places):
        expected = " ".join(place for place, _, _ in places) or "options alone"
        raise InputError(f"expected {expected}, got {given} words without an option. Quote what belongs together.")


def _is_number(text: str, kind: Callable[[str], float]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
