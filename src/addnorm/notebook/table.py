"""A list of rows that a notebook shows as a table and pandas takes as a data frame.

The type of a result does not depend on the packages that are installed (docs/decisions/0034-notebooks.md).
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from addnorm.errors import UnknownName
from addnorm.reporting.formats import table as rendering

_SHOWN = 20
"""Rows that a notebook shows of a longer table: half from its start, half from its end."""
_WIDTH = 100


# A list of dicts and not a data frame, so that the type of a result does not depend on what is installed: code that
# was written where pandas is missing works where it is there. Rendering is that of `formats/table.py`; this class
# adds what a notebook asks for.
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
        return self._rendered(self).to_pandas()

    def __repr__(self) -> str:
        if not self:
            return f"Table of 0 rows: {self._empty}"
        return f"{self._title()}\n\n{self._rendered(self._shown()).text(_WIDTH)}"

    def _repr_html_(self) -> str:
        return (
            f"<p>{self._title()}</p>{self._rendered(self._shown()).html()}" if self else f"<p>{escape(repr(self))}</p>"
        )

    def _title(self) -> str:
        return f"Table of {len(self)} rows × {len(self.columns)} columns"

    def _rendered(self, rows: Sequence[dict[str, Any]]) -> rendering.ResultTable:
        numbers = [name for name in self.columns if self and isinstance(self[0][name], int | float)]
        return rendering.ResultTable(
            [rendering.Column(name, None, _cell, "r" if name in numbers else "l") for name in self.columns], rows
        )

    def _shown(self) -> list[dict[str, Any]]:
        if len(self) <= _SHOWN:
            return self
        return [*self[: _SHOWN // 2], dict.fromkeys(self.columns, "…"), *self[-_SHOWN // 2 :]]


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
