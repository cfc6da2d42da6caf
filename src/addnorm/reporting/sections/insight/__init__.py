"""Inside a model, layer by layer, as `addnorm inspect` measured it; and the audit of one of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.csv_table import as_csv
from addnorm.reporting.measure import Measure
from addnorm.reporting.measures import measures
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.checkpoints import inspect_command
from addnorm.reporting.section import Figure, FigureTable, Rows, Section
from addnorm.reporting.sections.insight import audited, panels
from addnorm.reporting.sections.insight.rows import checkpoint_table, insight_table, layer_rows
from addnorm.reporting.sections.insight.table import latex
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, MODEL_PAGE, View
from addnorm.words import Phrases

_OF_CHECKPOINTS = "Each checkpoint on the text that it was measured on"


class InsightSection(Section):
    """Measures per layer: panels of one model, figures of all models side by side."""

    order = 150
    pages = (MODEL_PAGE, CHECKPOINT_PAGE)
    in_report = "model"
    needs_study = False
    run_files = (inspections.NAME, audited.NAME)

    @property
    def figures(self) -> Sequence[Figure]:  # type: ignore[override]
        """One per measure."""
        return [_figure(measure) for measure in measures().values()]

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        variant = view.variant or ""
        return {
            "insight": panels.insight(snapshot, variant, view.language),
            "audited": audited.audited(snapshot, variant),
            "command": inspect_command(snapshot, variant),
        }

    def files(self, snapshot: Snapshot) -> Mapping[str, str]:
        table, checkpoints = insight_table(snapshot), checkpoint_table(snapshot)
        tables = {f"insight-{key}.tex": text for key, text in latex(table).items()}
        of_runs = {"insight.csv": as_csv(table), **tables} if table else {}
        as_variants = [{"variant": row["checkpoint"], "step": None, **row} for row in checkpoints]
        tables = {f"checkpoints-{key}.tex": text for key, text in latex(as_variants, _OF_CHECKPOINTS).items()}
        return of_runs | ({"checkpoints.csv": as_csv(checkpoints), **tables} if checkpoints else {})


def _figure(measure: Measure) -> Figure:
    def rows(snapshot: Snapshot, t: Phrases) -> Rows:
        return layer_rows(snapshot, measure.key)

    return Figure(
        name=measure.name,
        caption=measure.caption,
        rows=rows,
        numbers=("start", "end"),
        draw=measure.figure,
        table=_figure_table,
    )


def _figure_table(rows: Rows, t: Phrases) -> FigureTable:
    header = ("common.model", "scalars.layer", "insight.at_start", "insight.at_end")
    return FigureTable(
        header=tuple(map(t, header)),
        names=1,
        lines=[
            (row["variant"], str(row["layer"]), *(_short(_mean(row[when])) for when in ("start", "end")))
            for row in rows
        ],
    )


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
