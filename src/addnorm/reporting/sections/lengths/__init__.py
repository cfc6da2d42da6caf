"""Loss and accuracy at lengths beyond the trained one, as `addnorm extrapolate` measured them."""

import shlex
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.numbers import fixed, interval, percent
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.reading.foreign import is_foreign
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.section import Section
from addnorm.reporting.sections.lengths.evaluation import NAME, lengths
from addnorm.reporting.sections.lengths.figure import figure
from addnorm.reporting.sections.lengths.table import csv, latex
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import Phrases


def _command(snapshot: Snapshot) -> str | None:
    """The command that evaluates the models of this library; None if others wrote all of them."""
    ours = [variant for variant in snapshot.variants if not is_foreign(snapshot, variant)]
    chosen = [] if len(ours) == len(snapshot.variants) else [f"--variant {shlex.quote(variant)}" for variant in ours]
    return " ".join(["addnorm extrapolate", str(snapshot.path), *chosen]) if ours else None


def length_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """The rows of DIR/extrapolation.json; none without it."""
    rows = content_of(snapshot, NAME)["rows"] if lengths(snapshot) is not None else ()
    return [{**row, "unit": snapshot.measure.unit} for row in rows]


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    columns = (
        Column("label", t("common.model"), side="l"),
        Column("length", t("figures.tokens")),
        Column("loss", t("common.loss"), lambda loss: fixed(loss, 4)),
        Column("loss_interval", t("figures.interval"), lambda ends: interval(ends, 4)),
        Column("accuracy", t("common.accuracy"), lambda share: share if share == "" else percent(share)),
    )
    longest = max(row["length"] for row in rows)
    buckets = [
        {**bucket, "label": row["label"], "length": f"{bucket['from']}–{bucket['to'] - 1} / {longest}", "accuracy": ""}
        for row in rows
        if row["length"] == longest
        for bucket in row["buckets"]
    ]
    return ResultTable(columns, [*rows, *buckets])


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    content = content_of(snapshot, NAME)
    return {"extrapolation.csv": csv(content), "extrapolation.tex": latex(content)}


class LengthsSection(Section):
    """The evaluation at lengths."""

    order = 100
    absence = "weights"
    pages = ("lengths",)
    study_files = (NAME,)
    shows_results = True
    figures = (
        Figure(
            name="extrapolation",
            caption="Loss and accuracy at lengths beyond the trained one, and loss by position in the longest windows.",
            rows=length_rows,
            numbers=("loss",),
            draw=figure,
            table=_figure_table,
            files=_files,
            is_on_demand=True,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"at": lengths(snapshot), "command": _command(snapshot)}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return lengths(snapshot) is not None
