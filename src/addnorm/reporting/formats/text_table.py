"""Aligned columns for a terminal."""

import unicodedata
from collections.abc import Container, Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: Container[int] = frozenset({0})) -> str:
    """Rows with aligned columns.

    Args:
        rows: cells; all rows have the same number of them.
        left: columns that are aligned to the left; the others are aligned to the right.
    """
    widths = [max(_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell + " " * (width - _width(cell)) if column in left else " " * (width - _width(cell)) + cell
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _width(cell: str) -> int:
    return sum(not unicodedata.combining(letter) for letter in cell)
