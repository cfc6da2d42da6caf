"""A list of rows that a notebook shows as a table and pandas takes as a data frame.

The type of a result does not depend on the packages that are installed (docs/decisions/0034-notebooks.md).
"""

import importlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from addnorm.errors import InputError, UnknownName
from addnorm.reporting.formats.text_table import aligned

_SHOWN = 20
"""Rows that a notebook shows of a longer table: half from its start, half from its end."""
_WIDTH = 100


class Table(list[dict[str, Any]]):
    """Rows as a list of dicts with the same keys, in the order of `columns`.

    Example:
        >>> table = addnorm.open_runs("runs/first").curves(metrics=["eval.loss"])
        >>> table.columns
        ('run', 'variant', 'seed', 'metric', 'step', 'value')
        >>> table[0]["metric"], len(table) == len(table.column("value"))
        ('eval.loss', True)
    """

    def __init__(self, rows: Iterable[dict[str, Any]], columns: Sequence[str], empty: str = "no rows") -> None:
        """Make a table.

        Args:
            rows: one dict per row; every dict has all columns.
            columns: names of the columns, also where there are no rows.
            empty: shown in place of rows that are missing, with what to do.
        """
        super().__init__(rows)
        self.columns = tuple(columns)
        self._empty = empty

    def column(self, name: str) -> list[Any]:
        """Values of one column, in the order of the rows.

        Raises:
            UnknownName: no such column.
        """
        if name not in self.columns:
            raise UnknownName("column", name, self.columns)
        return [row[name] for row in self]

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame` of shape [rows, columns].

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
        return pandas.DataFrame(list(self), columns=list(self.columns))

    def __repr__(self) -> str:
        if not self:
            return f"Table of 0 rows: {self._empty}"
        rows = [self.columns, *(tuple(map(_cell, values)) for values in self._shown())]
        numbers = [place for place, name in enumerate(self.columns) if isinstance(self[0][name], int | float)]
        left = [place for place in range(len(self.columns)) if place not in numbers]
        return f"{self._title()}\n\n{aligned(rows, left=left, width=_WIDTH)}"

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{escape(repr(self))}</p>"
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in values) + "</tr>"
            for values in self._shown()
        )
        return f"<p>{self._title()}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _title(self) -> str:
        return f"Table of {len(self)} rows × {len(self.columns)} columns"

    def _shown(self) -> list[tuple[Any, ...]]:
        rows = [tuple(row[name] for name in self.columns) for row in self]
        if len(rows) <= _SHOWN:
            return rows
        return [*rows[: _SHOWN // 2], ("…",) * len(self.columns), *rows[-_SHOWN // 2 :]]


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
