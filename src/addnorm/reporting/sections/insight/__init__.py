"""Inside a model, layer by layer, as `addnorm inspect` measured it; and the audit of one of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.numbers import mean_of_known
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.reporting.measure import LayerMeasure
from addnorm.reporting.measures import measures
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.checkpoints import inspect_command
from addnorm.reporting.section import Section
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
        of_runs = {"insight.csv": ResultTable.of(table).csv(), **tables} if table else {}
        as_variants = [{"variant": row["checkpoint"], "step": None, **row} for row in checkpoints]
        tables = {f"checkpoints-{key}.tex": text for key, text in latex(as_variants, _OF_CHECKPOINTS).items()}
        return of_runs | ({"checkpoints.csv": ResultTable.of(checkpoints).csv(), **tables} if checkpoints else {})


def _figure(measure: LayerMeasure) -> Figure:
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


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    mean = dashed(".4g", "–")
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("layer", t("scalars.layer")),
        Column("start", t("insight.at_start"), lambda values: mean(mean_of_known(values))),
        Column("end", t("insight.at_end"), lambda values: mean(mean_of_known(values))),
    )
    return ResultTable(columns, rows)
