"""Other questions of `addnorm rank`, one file each: what they print, as text in the terminal's language or as LaTeX."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from addnorm.reporting.formats.latex import escaped
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.questions import unit_of as unit_of
from addnorm.reporting.questions import warnings_text as warnings_text

_NUMBERS = re.compile(r"[\[\]+\-.,\d ]*\d[\[\]+\-.,\d ]*")
"""A cell of numbers alone, set in math mode so that a minus is no hyphen."""
_LAW = re.compile(r"([\d.e+]+ \+ [\d.e+]+ C)\^(-[\d.]+)")
"""The law of a loss, as `1.6 + 88.3 C^-0.094`."""


def percent_of(content: Mapping[str, Any]) -> str:
    """The confidence of an answer in per cent."""
    return f"{100 * content['confidence']:g}"


def in_latex(table: ResultTable, *comments: str) -> str:
    """A table whose texts are for a terminal, with everything that LaTeX reads in another way escaped."""
    columns = [replace(column, words=_cell(column.heading), form=_written(column)) for column in table.columns]
    return ResultTable(columns, table.rows).latex(*comments)


def _written(column: Column) -> Callable[[Any], str]:
    return lambda value: _cell(column.form(value))


def _cell(text: str) -> str:
    if (law := _LAW.fullmatch(text)) is not None:
        return f"${law[1]}^{{{law[2]}}}$"
    return f"${text}$" if _NUMBERS.fullmatch(text) else escaped(text).replace("×", r"$\times$")
