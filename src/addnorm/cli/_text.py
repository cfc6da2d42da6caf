"""Output of the commands: aligned plain text for people, one JSON value for programs, messages on standard error."""

import json
import shutil
import sys
from typing import Any

from addnorm.errors import InputError
from addnorm.reporting.formats.numbers import quantity
from addnorm.reporting.formats.table import ResultTable
from addnorm.reporting.formats.text_table import filled
from addnorm.words import spoken, translated

__all__ = [
    "config_table", "duration", "on_screen", "page_width", "paragraph", "print_json", "print_line", "print_message", "quantity",
    "screen_width",
]  # fmt: skip


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
