r"""A result described once, as columns and rows; text, CSV, LaTeX, HTML and data frames are renderers of it.

A LaTeX table has booktabs rules and is as wide as a column of a two-column paper at most: at `\small` with short names it
fits into 241 pt; a test compiles and measures them. What would not fit becomes several tables.
"""

import csv
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from addnorm.errors import InputError
from addnorm.reporting.formats.text_table import aligned, side_by_side
from addnorm.words import translated


def dashed(form: str | Callable[[Any], str], dash: str = "-") -> Callable[[Any], str]:
    """A format of values, some of which are None.

    Args:
        form: a format specification such as `.4f`, or a function.
        dash: what stands for None.

    Example:
        >>> dashed(".2f")(0.125), dashed(".2f")(None)
        ('0.12', '-')
    """
    write = form if callable(form) else lambda value: format(value, form)
    return lambda value: dash if value is None else write(value)


_PLAIN = dashed("")


def at(*path: str | int) -> Callable[[Any], Any]:
    """A function that takes the value at a path from a row; None where a part of the path is missing.

    Args:
        path: keys of mappings, places of sequences, names of attributes.

    Example:
        >>> at("interval", 1)({"interval": [0.5, 1.5]}), at("versus", "base", "verdict")({"versus": {}})
        (1.5, None)
    """

    def take(row: Any) -> Any:
        for step in path:
            if row is None:
                return None
            if isinstance(row, Mapping):
                row = row.get(step)
            elif isinstance(step, str):
                row = getattr(row, step)
            else:
                row = row[step]
        return row

    return take


def against(reference: str) -> "list[Column]":
    """Columns of a CSV file for the comparison with a reference, of rows with `versus`."""
    paths = {"verdict": (), "difference": (), "low": ("interval", 0), "high": ("interval", 1), "seeds_needed": ()}
    return [
        Column(f"{reference}:{name}", value=at("versus", reference, *(path or (name,)))) for name, path in paths.items()
    ]


def again(reference: str) -> "list[Column]":
    """Columns of a CSV file for what the second batch of seeds says of the comparison with a reference."""
    names = {"again": "state", "again_difference": "difference", "again_p": "p"}
    return [Column(f"{reference}:{name}", value=at("versus", reference, "again", key)) for name, key in names.items()]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    """Name in CSV and in data frames; without `value`, also the key or the attribute of a row that holds the value."""
    words: str | None = None
    """The heading; the key if not given."""
    form: Callable[[Any], str] = _PLAIN
    """A value as text, for every renderer but CSV and data frames, which have the value itself."""
    side: Literal["l", "r"] = "r"
    """`l` for words, which are aligned to the left; `r` for numbers."""
    value: Callable[[Any], Any] | None = None
    """Takes the value from a row; None for that of the key."""

    @property
    def heading(self) -> str:
        """The heading."""
        return self.key if self.words is None else self.words

    def of(self, row: Any) -> Any:
        """The value in a row."""
        if self.value is not None:
            return self.value(row)
        return row[self.key] if isinstance(row, Mapping) else getattr(row, self.key)


# One description, five renderers. `value` takes a number from a row, `form` writes it; CSV and data frames use the
# first alone, so that no rounding gets into files, and text, LaTeX and HTML use both, so that they agree to the
# digit. A column that formatted in `value` would put texts into a CSV of numbers. LaTeX needs escaped names: there
# `form` escapes, HTML escapes by itself.
class ResultTable:
    r"""Columns, and rows of any type that the columns read.

    Example:
        >>> table = ResultTable([Column("name", side="l"), Column("loss", form=dashed(".2f"))], [{"name": "base", "loss": 2.5}])
        >>> print(table.text())
        name  loss
        base  2.50
        >>> table.csv()
        'name,loss\nbase,2.5\n'
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[Any]) -> None:
        self.columns, self.rows = tuple(columns), rows

    @staticmethod
    def of(rows: Sequence[Mapping[str, Any]]) -> "ResultTable":
        """A table of at least one row with a column per key of the rows."""
        return ResultTable([Column(key) for key in rows[0]], rows)

    @property
    def head(self) -> list[str]:
        """Headings."""
        return [column.heading for column in self.columns]

    @property
    def _spoken(self) -> list[str]:
        return [translated(heading) for heading in self.head]  # of a terminal; files keep the English ones

    @property
    def body(self) -> list[list[str]]:
        """Texts of the cells by row."""
        return [[column.form(column.of(row)) for column in self.columns] for row in self.rows]

    @property
    def _left(self) -> list[int]:
        return [place for place, column in enumerate(self.columns) if column.side == "l"]

    def text(self, width: int | None = None, *, names: int = 1) -> str:
        """Aligned columns for a terminal.

        Args:
            width: columns of the terminal; as many as the table needs if not given.
            names: number of first columns that name a row, which every part of a divided table repeats.
        """
        return aligned([self._spoken, *self.body], left=self._left, width=width, names=names)

    def blocks(self, width: int) -> list[str]:
        """As many columns next to the first as the width holds, the rest in further tables; headings are not folded."""
        return side_by_side([self._spoken, *self.body], self._left, width)

    def csv(self) -> str:
        """Comma-separated values: numbers in full precision, an empty cell for None."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        writer.writerows([column.of(row) for column in self.columns] for row in self.rows)
        return out.getvalue()

    def latex(self, *comments: str) -> str:
        r"""A `tabular` with booktabs rules (`\usepackage{booktabs}`), comments above it; the texts are ready for LaTeX."""
        return "\n".join(
            [
                *(f"% {' '.join(comment.split())}" for comment in comments),
                r"{\setlength{\tabcolsep}{4pt}%",
                rf"\begin{{tabular}}{{{''.join(column.side for column in self.columns)}}}",
                r"\toprule",
                " & ".join(self.head) + r" \\",
                r"\midrule",
                *(" & ".join(line) + r" \\" for line in self.body),
                r"\bottomrule",
                r"\end{tabular}}",
            ]
        ) + "\n"  # fmt: skip

    def html(self) -> str:
        """A `table` with everything escaped."""
        head = "".join(f"<th>{escape(words)}</th>" for words in self.head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in self.body)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def to_pandas(self) -> Any:
        """The values as a `pandas.DataFrame` of shape [rows, columns].

        Raises:
            InputError: pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise InputError(
                "to_pandas: expected the package pandas, got none. Install it by `pip install 'addnorm[notebook]'`, or use "
                "the table as it is, a list of dicts."
            ) from error
        # As dicts: pandas takes None for a missing number in a list of dicts, and for an object in a list of lists.
        values = [{column.key: column.of(row) for column in self.columns} for row in self.rows]
        return pandas.DataFrame(values, columns=[column.key for column in self.columns])
