"""Output of the commands: aligned plain text for people, one JSON value for programs, messages on standard error."""

import json
import shutil
import sys
from typing import Any

from addnorm.reporting.formats.numbers import quantity
from addnorm.reporting.formats.table import ResultTable

__all__ = [
    "duration", "on_screen", "page_width", "print_json", "print_line", "print_message", "quantity", "screen_width",
]  # fmt: skip


def print_json(value: Any) -> None:
    """Print one JSON value on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_line(text: str) -> None:
    """Print a line of progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def print_message(text: str) -> None:
    """Print a message on standard error."""
    print(f"addnorm: {text}", file=sys.stderr)


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


def duration(seconds: float | int) -> str:
    """Format as `45 s`, `12 min`, `3 h 05 min`, `4.2 days`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{seconds / 86400:.1f} days"
