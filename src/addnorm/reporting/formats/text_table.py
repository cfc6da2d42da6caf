"""Aligned columns and filled lines for a terminal, where a Chinese letter is two columns wide."""

import re
import textwrap
from collections.abc import Collection, Container, Sequence

from rich.cells import cell_len

_LEAST_WORDS = 20
"""Narrowest column that words are wrapped to."""
_LEAST_HEADING = 6
"""Shorter words of a heading share a line."""

Cells = Sequence[str]
_OPENING, _CLOSING, _WIDE = "（“‘《", "，。、；：！？）”’》…", "\u2e80-\u9fff"
# Chinese has no spaces: a line may end behind every letter, but not before a closing mark or behind an opening one.
_PIECE = re.compile(rf"\s+|[{_OPENING}]*(?:[{_WIDE}]|[^\s{_OPENING}{_CLOSING}{_WIDE}]+|.)[{_CLOSING}]*")


def aligned(
    rows: Sequence[Cells], *, left: Container[int] = frozenset({0}), width: int | None = None, names: int = 1
) -> str:
    """Rows with aligned columns.

    A table that is wider than `width` has its headings folded; if it is still too wide, its longest column of words is
    wrapped, or else it is divided into tables below each other. Only a name that is too long itself exceeds the width.

    Args:
        rows: cells; all rows have the same number of them, and the first row has the headings.
        left: columns that are aligned to the left; the others are aligned to the right.
        width: columns of the terminal; as many as the table needs if not given.
        names: number of first columns that name a row, which every part of a divided table repeats.
    """
    if width is None or _total(_widths(rows)) <= width:
        return _table(rows, left)
    rows = _with_folded_headings(rows)
    if _total(_widths(rows)) > width:
        rows = _with_wrapped_words(rows, left, width, names)
    return "\n\n".join(side_by_side(rows, left, width, names))


def warned(sentences: Sequence[str], width: int) -> list[str]:
    """Warnings below a table as one part of its text; none without any."""
    notes = [filled(f"! {sentence}", width, subsequent_indent="  ") for sentence in sentences]
    return ["\n".join(notes)] if notes else []


def filled(text: str, width: int, *, subsequent_indent: str = "") -> str:
    """Text in lines that are not wider than a number of columns.

    Args:
        text: one paragraph.
        width: columns.
        subsequent_indent: before every line but the first.
    """
    return "\n".join(_wrapped(text, width, subsequent_indent))


def _wrapped(text: str, width: int, subsequent_indent: str = "") -> list[str]:
    if cell_len(text) == len(text):
        # A name may hold a hyphen, and an option begins with two.
        return textwrap.wrap(text, width, subsequent_indent=subsequent_indent, break_on_hyphens=False)
    lines = [text[: len(text) - len(text.lstrip())]]
    for piece in _PIECE.findall(" ".join(text.split())):
        if lines[-1].strip() and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append(subsequent_indent)
        if not (piece.isspace() and not lines[-1].strip()):
            lines[-1] += piece
    return [line.rstrip() for line in lines]


def side_by_side(rows: Sequence[Cells], left: Container[int], width: int, names: int = 1) -> list[str]:
    """Rows with as many columns next to the names as the width holds, the rest in further tables."""
    columns = range(len(rows[0]))
    return [
        _table(
            [[row[column] for column in part] for row in rows],
            [place for place, column in enumerate(part) if column in left],
        )
        for part in ([*columns[:names], *part] for part in _parts(_widths(rows), width, names))
    ]


def _table(rows: Sequence[Cells], left: Container[int]) -> str:
    widths = _widths(rows)
    return "\n".join(
        "  ".join(
            cell + " " * (width - cell_len(cell)) if column in left else " " * (width - cell_len(cell)) + cell
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
        if any(row)  # a part of a divided table may have lower headings than the others
    )


def _with_folded_headings(rows: Sequence[Cells]) -> list[Cells]:
    """Headings in several lines, each as wide as the column's cells or the longest of its own words."""
    head, *body = rows
    folded = []
    for column, heading in enumerate(head):
        cells = max((cell_len(row[column]) for row in body), default=0)
        room = max([cells, _LEAST_HEADING, *map(cell_len, heading.split())])
        folded.append(textwrap.wrap(heading, room, break_long_words=False, break_on_hyphens=False))
    return [*_lines_of(folded, from_below=True), *body]


def _with_wrapped_words(rows: Sequence[Cells], left: Container[int], width: int, names: int) -> Sequence[Cells]:
    widths = _widths(rows)
    words = [
        column
        for column in range(names, len(widths))
        if column in left and any(" " in row[column] for row in rows) and widths[column] > _LEAST_WORDS
    ]
    if not words:
        return rows
    longest = max(words, key=lambda column: widths[column])
    room = max(_LEAST_WORDS, width - (_total(widths) - widths[longest]))
    wrapped: list[Cells] = []
    for row in rows:
        cells = [_wrapped(cell, room) if column == longest else [cell] for column, cell in enumerate(row)]
        wrapped += _lines_of(cells)
    return wrapped


def _lines_of(cells: Sequence[Sequence[str]], *, from_below: bool = False) -> list[Cells]:
    """Cells of several lines as rows of one line each."""
    height = max(1, *map(len, cells))
    blank = [[""] * (height - len(cell)) for cell in cells]
    full = [[*gap, *cell] if from_below else [*cell, *gap] for gap, cell in zip(blank, cells, strict=True)]
    return [list(line) for line in zip(*full, strict=True)]


def _parts(widths: Sequence[int], width: int, names: int) -> list[list[int]]:
    """Columns after the names, in parts that fit into the width."""
    taken = _total(widths[:names])
    parts: list[list[int]] = [[]]
    used = taken
    for column in range(names, len(widths)):
        if parts[-1] and used + 2 + widths[column] > width:
            parts.append([])
            used = taken
        parts[-1].append(column)
        used += 2 + widths[column]
    return parts


def _widths(rows: Sequence[Cells]) -> list[int]:
    return [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]


def _total(widths: Collection[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)
