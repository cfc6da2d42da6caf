"""Output of the commands: aligned plain text for people, one JSON value for programs, messages on standard error."""

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from addnorm.reporting.formats import text_table


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


def aligned(rows: Sequence[Sequence[str]], *, right: str = "") -> str:
    """Format rows as text with aligned columns, not wider than the terminal.

    Args:
        rows: the first row holds the headings.
        right: one character per column, `r` for columns aligned to the right; others are aligned to the left.
    """
    sides = right.ljust(len(rows[0]), "l")
    left = [column for column, side in enumerate(sides) if side != "r"]
    return text_table.aligned(rows, left=left, width=screen_width())


def duration(seconds: float | int) -> str:
    """Format as `45 s`, `12 min`, `3 h 05 min`, `4.2 days`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 5970:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    return f"{seconds / 86400:.1f} days"


def quantity(number: float | int) -> str:
    """Format with three significant digits: `512`, `51.7 k`, `2.31 M`, `4.10 T`."""
    for factor, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g}"
