"""Output of the commands: aligned plain text for people, one JSON value for programs, messages on standard error, and figure
files, whose format follows from the suffix and which are written whole or not at all."""

import json
import shutil
import sys
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from addnorm.errors import InputError
from addnorm.reporting.formats.numbers import quantity
from addnorm.reporting.formats.table import ResultTable
from addnorm.reporting.formats.text_table import filled
from addnorm.words import spoken, translated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "JsonOption", "PluginOption", "StudyOptions", "config_table", "duration", "on_screen", "page_width",
    "paragraph", "print_json", "print_line", "print_message", "quantity", "refuse", "require_figure_file", "screen_width",
    "write_figure",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """The option of every command."""

    json: bool = False
    """Print JSON in place of text."""


@dataclass(frozen=True, kw_only=True)
class PluginOption(JsonOption):
    """Options of a command that reads models."""

    plugin: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Files with mechanisms of your own that are used."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions(JsonOption):
    """Options of a command that reads a study."""

    study: Annotated[str, tyro.conf.Positional]
    """Name of a built-in study, or a study file (.yaml, .py)."""
    profile: str | None = None
    """Profile of the study, such as `quick` or `paper`; its default if not given."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a field: `--set training.steps=500`. May be given more than once."""


def refuse(options: Any, where: str, *names: str) -> None:
    """Refuse options that mean nothing together with another: one that was ignored would look as if it had been heeded.

    Args:
        options: of a command, as given.
        where: the other option.
        names: of the fields that are refused.

    Raises:
        InputError: one of them has another value than its default.
    """
    for field in fields(options):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name in names and getattr(options, field.name) != default:
            name = field.name.replace("_", "-")
            raise InputError(f"--{name}: expected no such option with {where}, got one. Leave it out.")


SUFFIXES = (".svg", ".pdf", ".png")
"""Formats of figure files."""


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_line(text: str) -> None:
    """Print a line of progress on standard error."""
    print(translated(text), file=sys.stderr, flush=True)


def print_message(text: str) -> None:
    """Print a message on standard error."""
    print(f"addnorm: {translated(text)}", file=sys.stderr)


_PAGE = 100


def screen_width() -> int | None:
    """Columns of the terminal; None if the output goes into a file or to a program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def page_width() -> int:
    """Columns for running text and tables with a layout of their own: those of the terminal, or 100 in a file."""
    return screen_width() or _PAGE


def on_screen(table: ResultTable) -> str:
    """A table as text, not wider than the terminal."""
    return table.text(screen_width())


def paragraph(text: str) -> str:
    """A message in the terminal's language, in lines that fit."""
    return filled(translated(text), page_width())


def duration(seconds: float | int) -> str:
    """Format as `45 s`, `12 min`, `3 h 05 min`, `4.2 days`, in the terminal's language."""
    t = spoken()
    if seconds < 99.5:
        return t("duration.seconds", s=seconds)
    if seconds < 5970:
        return t("duration.minutes", m=seconds / 60)
    if seconds < 48 * 3600:
        return t("duration.hours", h=int(seconds // 3600), m=int(seconds % 3600 // 60))
    return t("duration.days", d=seconds / 86400)


def config_table(text: str | None) -> dict[str, Any] | None:
    """Parse --config.

    Raises:
        InputError: it is not a JSON object.
    """
    if text is None:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(
            f"--config: expected a JSON object such as '{{\"num_hidden_layers\": 2}}', got {text!r}: {error}."
        ) from error
    if not isinstance(content, dict):
        raise InputError(f"--config: expected a JSON object such as '{{\"num_hidden_layers\": 2}}', got {text!r}.")
    return content


def require_figure_file(path: Path | None) -> None:
    """Require, before any work is done, that a figure can be written to `path`.

    Raises:
        InputError: another suffix, or its folder does not exist.
    """
    if path is None:
        return
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"--plot: expected a file name that ends with one of {', '.join(SUFFIXES)}, got {str(path)!r}."
        )
    if not path.parent.is_dir():
        raise InputError(f"--plot: expected a file in an existing folder, got {str(path)!r}. Make the folder first.")


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure to `path`.

    Raises:
        DiskFull, JobError: the disk refused the file.
    """
    from addnorm.reporting.drawing.image import saved
    from addnorm.store import write_atomic

    write_atomic(path, saved(figure, path.suffix[1:]))
