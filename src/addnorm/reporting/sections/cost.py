"""Cost of each model: counted before the first step (`costs.json`) and measured in training; and redundant biases, as
counted by `addnorm audit DIR` (`audit.json`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from addnorm.reporting.audit.table import merged_names
from addnorm.reporting.drawing.figure_style import figure_of, name_rows, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.latex import escaped, significant
from addnorm.reporting.formats.numbers import mean_of_known, quantity, size
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.reading.checkpoints import study_command
from addnorm.reporting.reading.study_files import UNREADABLE, content_of, counted_costs
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.store.study import COSTS
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

AUDIT = "audit.json"
UNITS = {"parameters": 1e6, "flops_per_token": 1e6, "tokens_per_s": 1.0, "peak_bytes": 1e9, "wall_s": 1.0}
"""Unit of each cost, on axes and in LaTeX."""
_TITLES = {
    "parameters": "M params",
    "flops_per_token": "MFLOP",
    "tokens_per_s": "tok./s",
    "peak_bytes": "GB",
    "wall_s": "s",
}
"""Headings of a LaTeX table in these units."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One model."""

    variant: str
    parameters: int | None
    flops_per_token: float | None
    relative: float | None
    """FLOPs per token over those of the first model."""
    planned_bytes: int | None
    """Weights, gradients, optimizer state, activations and buffers at the peak of one step, counted."""
    tokens_per_s: float | None
    """Of each run's newest training event, mean over the runs."""
    peak_bytes: int | None
    """Largest resident memory of any finished run's worker."""
    wall_s: float | None
    """From a run's first event to its end, pauses included; mean over finished runs."""
    paused: bool
    """True if one of those runs took more than one attempt."""


@dataclass(frozen=True, kw_only=True)
class Wasted:
    """One model."""

    variant: str
    size: int
    """Bias scalars."""
    joint_null: int
    """Number of them that can be removed together."""
    redundant: tuple[str, ...]
    """Individually redundant parameters, layers merged."""
    reason: str | None
    """Reason why the model could not be audited, in English."""
    note: Any
    """The same as code and values; None if the file has none."""


def costs(snapshot: Snapshot) -> list[Cost]:
    """A row per model, in the study's order."""
    counted = counted_costs(snapshot)
    base = next((of.get("flops_per_token") for of in counted.values()), None)
    return [_cost(name, snapshot, counted.get(name, {}), base) for name in snapshot.variants]


def _cost(variant: str, snapshot: Snapshot, counted: Mapping[str, Any], base: float | int | None) -> Cost:
    runs = snapshot.first_batch(variant)
    done = [run for run in runs if run.state == "finished"]
    flops = float(counted["flops_per_token"]) if "flops_per_token" in counted else None
    return Cost(
        variant=variant,
        parameters=counted.get("parameters"),
        flops_per_token=flops,
        relative=flops / base if flops and base else None,
        planned_bytes=counted.get("peak_bytes"),
        tokens_per_s=mean_of_known([run.tokens_per_s for run in runs]),
        peak_bytes=max((run.peak_bytes for run in done if run.peak_bytes is not None), default=None),
        wall_s=mean_of_known([run.wall_s for run in done]),
        paused=any(run.attempts > 1 for run in done),
    )


def audits(snapshot: Snapshot) -> list[Wasted]:
    """The audited models in the study's order; empty if the file belongs to another plan."""
    content = content_of(snapshot, AUDIT)
    if content.get("plan_hash") != snapshot.plan["plan_hash"]:
        return []
    try:
        return [
            Wasted(
                variant=name,
                size=int(of.get("size", 0)),
                joint_null=int(of.get("joint_null", 0)),
                redundant=tuple(merged_names([str(parameter) for parameter in of.get("redundant", [])])),
                reason=None if "reason" not in of else str(of["reason"]),
                note=of.get("note"),
            )
            for name in snapshot.variants
            if (of := content["variants"].get(name)) is not None
        ]
    except UNREADABLE:
        return []


def cost_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per variant."""
    return [{name: getattr(cost, name) for name in ("variant", *UNITS)} for cost in costs(snapshot)]


@figure_of("row of costs")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of costs, a panel per cost; a cost that no variant has a number for is left out.

    Args:
        rows: one per variant: `variant`, and any of `parameters`, `flops_per_token`, `tokens_per_s`, `peak_bytes`, `wall_s`
            (None where not known).
        language: of the labels.

    Raises:
        ValueError: there is no number in the rows.
    """
    shown = [name for name in UNITS if any(row.get(name) is not None for row in rows)]
    if not shown:
        raise ValueError("a figure of costs needs at least one number, got none.")
    drawn = new_figure(1.6 + 2.1 * len(shown), 1.1 + 0.3 * len(rows))
    panels = drawn.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    heights = range(len(rows), 0, -1)
    for axes, name in zip(panels, shown, strict=True):
        for row, y in zip(rows, heights, strict=True):
            if row.get(name) is not None:
                value = row[name] / UNITS[name]
                axes.barh(y, value, height=0.55, color="0.75", edgecolor="black", linewidth=0.6)
                axes.annotate(_short(value), (value, y), (3, 0), textcoords="offset points", va="center", fontsize=7)
        name_rows(axes, heights, [row["variant"] for row in rows])
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=3)
        tidy(axes, across=t(f"plot.{name}"), grid="x")
    return drawn


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    def seconds(wall: float | None) -> str:
        return "–" if wall is None else t("time.seconds", s=round(wall))

    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("parameters", t("cost.parameters"), quantity),
        Column("flops_per_token", t("cost.flops"), quantity),
        Column("tokens_per_s", t("cost.speed"), quantity),
        Column("peak_bytes", t("cost.peak"), size),
        Column("wall_s", t("cost.wall"), seconds),
    )
    return ResultTable(columns, rows)


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    return {"costs.csv": ResultTable.of(rows).csv(), "costs.tex": latex(rows)}


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per variant, three significant digits; a dash where a number is not known."""

    def column(key: str, unit: float) -> Column:
        return Column(key, _TITLES[key], lambda value: significant(None if value is None else value / unit))

    columns = [Column("variant", form=escaped, side="l"), *(column(*each) for each in UNITS.items())]
    return ResultTable(columns, rows).latex(
        "Parameters; FLOPs per token; tokens per second; largest resident memory; time of a run."
    )


class CostSection(Section):
    """Costs and audits of all models."""

    order = 110
    absence = "cost"
    pages = ("cost",)
    follows = frozenset({"runs"})
    study_files = (COSTS, AUDIT)
    figures = (
        Figure(
            name="costs",
            caption="Costs.",
            rows=cost_rows,
            numbers=("parameters", "tokens_per_s", "peak_bytes", "wall_s"),
            draw=figure,
            table=_figure_table,
            files=_files,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"costs": costs(snapshot), "audits": audits(snapshot), "command": study_command("audit", snapshot)}
