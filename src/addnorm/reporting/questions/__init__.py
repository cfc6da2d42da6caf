"""Answers to questions about runs in sentences and tables, one file each: for a terminal, for a notebook, and in LaTeX.

The function `answer` of each takes the JSON of its answer and the phrases of a language.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from addnorm.reporting.formats.latex import escaped
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.formats.text_table import filled
from addnorm.statistics.measure import NATS
from addnorm.words import Phrases, phrases, spoken, translated

_NUMBERS = re.compile(r"[\[\]+\-.,\d ]*\d[\[\]+\-.,\d ]*")
"""A cell of numbers alone, set in math mode so that a minus is no hyphen."""
_LAW = re.compile(r"([\d.e+]+ \+ [\d.e+]+ C)\^(-[\d.]+)")
"""The law of a loss, as `1.6 + 88.3 C^-0.094`."""


def warnings_text(warnings: Sequence[str], width: int, t: Phrases) -> list[str]:
    """Lines of the warnings of an answer, behind an empty one if there are any."""
    lines = [filled(f"! {translated(warning, t)}", width, subsequent_indent="  ") for warning in warnings]
    return ["", *lines] if lines else []


def unit_of(unit: str, t: Phrases) -> str:
    """A unit in words."""
    return t("text.nats") if unit == NATS else translated(unit, t)


@dataclass(frozen=True)
class WrittenAnswer:
    """Sentences and tables in their order, and what a reader has to know about them."""

    parts: Sequence[Sequence[str] | ResultTable]
    notes: Sequence[str]
    narrow: Sequence[Sequence[str] | ResultTable] = ()
    """The parts for LaTeX, where tables that a page cannot hold are divided."""

    def text(self, width: int) -> str:
        """For a terminal of that many columns, in its language."""
        blocks = [
            part.text(width).rstrip("\n")
            if isinstance(part, ResultTable)
            else "\n".join(filled(each, width) for each in part)
            for part in self.parts
        ]
        return "\n".join(["\n\n".join(blocks), *warnings_text(self.notes, width, spoken())])

    def latex(self) -> str:
        """The tables in LaTeX, below the notes and sentences as comments."""
        tables, comments = [], [*self.notes]
        for part in self.narrow or self.parts:
            if isinstance(part, ResultTable):
                tables.append(in_latex(part, *comments))
                comments = []
            else:
                comments += part
        return "\n".join(tables)

    def html(self) -> str:
        """For a notebook, in English."""
        blocks = [
            part.html() if isinstance(part, ResultTable) else f"<p>{'<br>'.join(map(escape, part))}</p>"
            for part in self.parts
        ]
        notes = "".join(f"<li>{escape(translated(note, phrases('en')))}</li>" for note in self.notes)
        return "".join([*blocks, f"<ul>{notes}</ul>" if notes else ""])


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
