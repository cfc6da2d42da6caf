"""Training curves. A live page's script draws them itself and requests more from `curves.json`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addnorm.reporting.drawing.line_styles import dash
from addnorm.reporting.figure import Figure
from addnorm.reporting.formats.listing import MOST_CARDS
from addnorm.reporting.section import Section
from addnorm.reporting.sections.curves.chart import chart_of
from addnorm.reporting.sections.curves.figure import curve_rows, figure, figure_files, figure_table, latex, long_curves
from addnorm.reporting.sections.curves.reading import (
    FIRST_SHOWN,
    MOST_SHOWN,
    charts,
    curves,
    metric_title,
    table,
)
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import AXES, METRICS, MODEL_PAGE, SMOOTHING, View
from addnorm.words import phrases, translated

__all__ = ["FIRST_SHOWN", "chart_of", "charts", "curves", "latex", "long_curves", "metric_title", "table"]


class CurvesSection(Section):
    """Training curves."""

    order = 80
    pages = ("curves", MODEL_PAGE)
    sources = frozenset({"study", "table"})
    figures = (
        Figure(
            name="curves",
            caption="Training curves: mean over seeds, band from least to largest.",
            rows=curve_rows,
            numbers=("mean",),
            draw=figure,
            table=figure_table,
            files=figure_files,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        selection = view.selection if view.variant is None else replace(view.selection, variants=(view.variant,))
        drawn, t = charts(snapshot, selection), phrases(view.language)
        looks = {line.variant: (line.style % 10, line.pattern) for line in reversed(drawn[0].series)}
        choices = [(*looks.get(name, (place, dash(place))), name) for place, name in enumerate(snapshot.variants)]
        form_action, _, query = view.link(view.page).partition("?") if view.is_live else ("", "", "")
        hidden = [tuple(pair.split("=", 1)) for pair in query.split("&") if "=" in pair]
        if view.variant is not None:
            hidden.append(("variant", view.variant))
        return {
            "charts": [(each, chart_of(each), *table(each)) for each in drawn],
            "selection": drawn[0].selection,
            "metric_titles": {each.metric: metric_title(snapshot, each.metric, t) for each in drawn}
            | ({metric: metric_title(snapshot, metric, t) for metric in METRICS} if snapshot.is_study else {}),
            "metrics": METRICS if snapshot.is_study else (),
            "axes": AXES if snapshot.is_study else AXES[:1],
            "no_curves": None
            if snapshot.table is None or snapshot.table.no_curves is None
            else translated(snapshot.table.no_curves, t),
            "smoothing": SMOOTHING,
            "choices": choices if view.variant is None else [],
            "is_long": view.variant is None and len(choices) > MOST_CARDS,
            "most": MOST_SHOWN,
            "source": view.link("curves.json") if view.is_live else None,
            "files": {kind: view.link(f"curves.{kind}") for kind in ("csv", "svg", "png")} if view.is_live else {},
            "form_action": form_action,
            "form_hidden": hidden,
        }

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return snapshot.table is None or snapshot.table.no_curves is None
