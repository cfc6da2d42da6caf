"""The report's figure of training curves, with its tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, legend_below, new_figure, style, tidy
from addnorm.reporting.figure import Rows
from addnorm.reporting.formats.latex import NONE, escaped, number
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.measured import levels
from addnorm.reporting.formats.numbers import spread
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.sections.curves.reading import TABLE_METRICS, curves, metric_title
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import Selection
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

DRAWN = {"train.loss": "train_loss", "eval.loss": "loss", "eval.accuracy": "accuracy"}
"""Metrics of the figure, and their names in its rows."""
_MOST_POINTS = 6
"""Points of a curve in the figure's table, at most."""
_STEPS = 2
"""Columns of steps before the last, at most."""
_MEASURES = {"train_loss": "Training loss", "loss": "Held-out loss", "accuracy": "Accuracy"}


def curve_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per variant and metric; thinned to what a figure can show."""
    rows = []
    names = DRAWN if snapshot.table is None else dict.fromkeys(TABLE_METRICS, "loss")
    plain = snapshot.table is None and snapshot.measure.in_nats
    for metric, name in names.items():
        drawn = curves(snapshot, Selection(metrics=(metric,), variants=snapshot.variants), most=None)
        rows += [
            {
                "variant": line.variant,
                "place": line.style,
                "metric": name,
                **({} if plain or name == "accuracy" else {"title": metric_title(snapshot, metric, t)}),
                "steps": list(line.steps),
                "mean": list(line.values),
                "low": list(line.low),
                "high": list(line.high),
            }
            for line in drawn.series
        ]
    return rows


def long_curves(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Curves as a table: one point per row."""
    return [
        {"variant": row["variant"], "metric": row["metric"], "step": step, "mean": mean, "low": low, "high": high}
        for row in rows
        for step, mean, low, high in zip(row["steps"], row["mean"], row["low"], row["high"], strict=True)
    ]


@figure_of("curve")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of curves, a panel per metric.

    Args:
        rows: one per variant and metric: `variant`, `place` (of the variant, for its style), `metric` (`train_loss`,
            `loss` or `accuracy`), `steps`, `mean`, `low`, `high`.
        language: of the labels.
    """
    metrics = grouped(rows, lambda row: str(row["metric"]))
    drawn = new_figure(4.6 * len(metrics) + 0.4, 4.4)
    panels = drawn.subplots(1, len(metrics), squeeze=False)[0]
    for axes, (metric, of_metric) in zip(panels, metrics, strict=True):
        factor = 100.0 if metric == "accuracy" else 1.0
        for row in of_metric:
            mean, low, high = ([factor * value for value in row[name]] for name in ("mean", "low", "high"))
            steps, drawn_as = row["steps"], style(row["place"])
            axes.plot(
                steps,
                mean,
                label=row["variant"],
                linewidth=1.1,
                markersize=4,
                # Few markers, offset between lines: they only distinguish the lines.
                markevery=(row["place"] % max(1, len(steps) // 5), max(1, len(steps) // 5)),
                **drawn_as,
            )
            axes.fill_between(steps, low, high, color=drawn_as["color"], alpha=0.12, linewidth=0)
        axes.locator_params(axis="x", integer=True)
        tidy(axes, across=t("plot.step"), up=of_metric[0].get("title") or t(f"plot.{metric}"))
    legend_below(drawn, panels[0])
    return drawn


def figure_table(rows: Rows, t: Phrases) -> ResultTable:
    metrics = {"train_loss": "metric.train.loss", "loss": "metric.eval.loss", "accuracy": "metric.eval.accuracy"}
    nats = t("text.nats")
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column(
            "metric",
            t("curves.metric"),
            side="l",
            value=lambda row: row["title"] or t(metrics[row["metric"]], unit=nats),
        ),
        Column("step", t("common.steps")),
        Column("mean", t("figures.mean"), value=_level_of("mean")),
        Column("low", t("figures.least"), value=_level_of("low")),
        Column("high", t("figures.largest"), value=_level_of("high")),
    )
    points = [
        (
            [{**point, "title": row.get("title")} for point in long_curves([row])],
            spread(len(row["steps"]), _MOST_POINTS),
        )
        for row in rows
    ]
    return ResultTable(columns, [curve[at] for curve, shown in points for at in shown])


def _level_of(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: levels(in_nats=row["title"] is None)(row[name])


def figure_files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    return {"curves.csv": ResultTable.of(long_curves(rows)).csv()} | {
        f"curves-{name}.tex": text for name, text in latex(rows).items()
    }


def latex(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A table per held-out measure, or of the training loss where nothing was evaluated; by measure.

    Args:
        rows: those of the figure of curves: `variant`, `metric`, `steps`, `mean`, `low`, `high`.
    """
    drawn = [row for row in rows if row["steps"]]
    evaluated = [row for row in drawn if row["metric"] != "train_loss"]
    return {
        metric: _metric_table(metric, of) for metric, of in grouped(evaluated or drawn, lambda row: str(row["metric"]))
    }


def _metric_table(metric: str, rows: Sequence[Mapping[str, Any]]) -> str:
    factor, digits, unit = (100.0, 2, " in per cent") if metric == "accuracy" else (1.0, 4, " in nats per token")
    name = _MEASURES[metric]
    if rows[0].get("title"):  # not in nats per token: the measure, with its unit
        name, unit = escaped(rows[0]["title"]), ""

    def mean(value: float | None) -> str:
        return number(None if value is None else factor * value, digits)

    def ends(row: Mapping[str, Any]) -> str:
        low, high = row["low"][-1], row["high"][-1]
        return NONE if factor * low == factor * high else f"{mean(low)}--{mean(high)}"

    def at_step(step: int) -> Column:
        return Column(
            f"step {step}", form=mean, value=lambda row: dict(zip(row["steps"], row["mean"], strict=True)).get(step)
        )

    steps = _some(sorted({step for row in rows for step in row["steps"]})[:-1])
    columns = (
        Column("variant", form=escaped, side="l"),
        *map(at_step, steps),
        Column("last", form=mean, value=lambda row: row["mean"][-1]),
        Column("range", value=ends),
    )
    return ResultTable(columns, rows).latex(
        f"{name}{unit}: means over the seeds that have reached a step.",
        "Range: least and largest seed at the last step.",
        *(["All steps are on one text; a ranking may be on more."] if metric == "loss" else []),
    )


def _some(steps: Sequence[int]) -> list[int]:
    """Some of the steps, evenly spread."""
    count = min(_STEPS, len(steps))
    return [steps[(place + 1) * len(steps) // count - 1] for place in range(count)]
