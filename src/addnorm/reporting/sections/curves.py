"""Training curves: any set of models, per seed or as mean and band, thinned to what a screen can show."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.chart import Chart, chart
from addnorm.reporting.drawing.figure_style import finished, legend_below, new_figure, style, tidy
from addnorm.reporting.drawing.line_styles import dash
from addnorm.reporting.formats.csv_table import as_csv
from addnorm.reporting.formats.latex import NONE, escaped, number, tabular
from addnorm.reporting.formats.numbers import fixed, spread
from addnorm.reporting.section import Figure, FigureTable, Rows, Section
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import METRICS, MODEL_PAGE, Selection, View
from addnorm.store import Damaged, Index
from addnorm.words import Phrases, phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

DRAWN = {"train.loss": "train_loss", "eval.loss": "loss", "eval.accuracy": "accuracy"}
"""Metrics of the figure, and their names in its rows."""
FIRST_SHOWN = 8
"""Models that are drawn before anybody chose."""
PARTS = 300
"""Points per curve at most."""
_MOST_POINTS = 6
"""Points of a curve in the figure's table, at most."""
_STEPS = 5
"""Columns of steps before the last, at most."""
_MEASURES = {"train_loss": "training loss", "loss": "loss", "accuracy": r"accuracy, \%"}
_FACTORS = {"accuracy": 100.0}
_DIGITS = {"accuracy": 2}


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, and its band where it has one."""

    label: str
    variant: str
    style: int
    """The variant's place in the study: the same colour wherever the variant is drawn."""
    seed: int | None
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    """Least value of any seed; empty where there is no band."""
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines to draw."""

    selection: Selection
    series: tuple[Series, ...]
    last_step: int
    steps_per_point: int
    """Length of the stretches whose means are drawn; 1 if every value is drawn by itself."""

    def to_json(self) -> dict[str, Any]:
        """What the page's script draws, and the table behind it."""
        steps, lines = table(self)
        return {
            "table": {"steps": steps, "rows": [{"label": label, "values": values} for label, values in lines]},
            "metric": self.selection.metric,
            "mode": self.selection.mode,
            "log": self.selection.log,
            "lastStep": self.last_step,
            "stepsPerPoint": self.steps_per_point,
            "series": [
                {
                    "label": line.label,
                    "variant": line.variant,
                    "style": line.style,
                    "dash": dash(line.style),
                    "seed": line.seed,
                    "steps": line.steps,
                    "values": line.values,
                    "low": line.low,
                    "high": line.high,
                }
                for line in self.series
            ],
        }


def chosen(snapshot: Snapshot, selection: Selection) -> Selection:
    """The selection with its models settled: those asked for that exist, else the references and the best ranked."""
    known = tuple(name for name in snapshot.variants if name in selection.variants)
    if known:
        return replace(selection, variants=known)
    started = [name for name in snapshot.variants if any(run.step > 0 for run in snapshot.of(name))]
    best = [row.variant for row in snapshot.ranking.variants] if snapshot.ranking is not None else started
    first = [name for name in dict.fromkeys([*snapshot.references, *best, *started]) if name in started][:FIRST_SHOWN]
    return replace(selection, variants=tuple(name for name in snapshot.variants if name in first))


def curves(snapshot: Snapshot, selection: Selection) -> Curves:
    """Read what the selection asks for."""
    selection = chosen(snapshot, selection)
    runs = [run for name in selection.variants for run in snapshot.of(name)]
    longest = max((run.steps for run in runs), default=0)
    last = longest if selection.last is None else min(selection.last, longest)
    first = max(0, min(selection.first, last))
    index = Index(snapshot.path)
    found: list[Series] = []
    for name in selection.variants:
        lines = [_line(index, run, selection.metric, first, last, snapshot) for run in snapshot.of(name)]
        lines = [line for line in lines if line.steps]
        found += lines if selection.mode == "seeds" else _mean(name, lines)
    return Curves(
        selection=selection,
        series=tuple(found),
        last_step=longest,
        steps_per_point=max(1, math.ceil((last - first + 1) / PARTS)),
    )


def _line(index: Index, run: RunView, metric: str, first: int, last: int, snapshot: Snapshot) -> Series:
    try:
        points = index.thinned(run.run, metric, first=first, last=last, parts=PARTS) if run.step > 0 else []
    except Damaged:  # the run is shown as blocked, with this very reason
        points = []
    return Series(
        label=f"{run.variant} · {run.seed}",
        variant=run.variant,
        style=snapshot.variants.index(run.variant),
        seed=run.seed,
        steps=tuple(step for step, _ in points),
        values=tuple(value for _, value in points),
        low=(),
        high=(),
    )


def _mean(variant: str, lines: Sequence[Series]) -> list[Series]:
    """Mean, least and largest over the seeds that have reached each step."""
    if not lines:
        return []
    tables = [dict(zip(line.steps, line.values, strict=True)) for line in lines]
    steps = sorted(set().union(*tables))
    columns = [[table[step] for table in tables if step in table] for step in steps]
    return [
        Series(
            label=variant,
            variant=variant,
            style=lines[0].style,
            seed=None,
            steps=tuple(steps),
            values=tuple(sum(column) / len(column) for column in columns),
            low=tuple(map(min, columns)),
            high=tuple(map(max, columns)),
        )
    ]


def table(found: Curves, count: int = 8) -> tuple[tuple[int, ...], tuple[tuple[str, tuple[float | None, ...]], ...]]:
    """The table behind the chart: up to `count` steps, and every line's value at the last point up to each."""
    reached = sorted({step for line in found.series for step in line.steps})
    if not reached:
        return (), ()
    picked = tuple(dict.fromkeys(reached[round(i * (len(reached) - 1) / (count - 1))] for i in range(count)))
    return picked, tuple((line.label, tuple(_at(line, step) for step in picked)) for line in found.series)


def _at(line: Series, step: int) -> float | None:
    if not line.steps or step > line.steps[-1]:
        return None
    return next((v for s, v in zip(reversed(line.steps), reversed(line.values), strict=True) if s <= step), None)


def chart_of(found: Curves) -> Chart | None:
    """The curves as a chart; None if there is nothing to draw."""
    asked = found.selection
    right = found.last_step if asked.last is None else asked.last
    return chart(found.series, asked.first, right, is_log=asked.log == "log")


def curve_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per variant and metric; thinned to what a figure can show."""
    found = []
    for metric, name in DRAWN.items():
        drawn = curves(snapshot, Selection(metric=metric, variants=snapshot.variants))
        found += [
            {
                "variant": line.variant,
                "place": line.style,
                "metric": name,
                "steps": list(line.steps),
                "mean": list(line.values),
                "low": list(line.low),
                "high": list(line.high),
            }
            for line in drawn.series
        ]
    return found


def long_curves(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Curves as a table: one point per row."""
    return [
        {"variant": row["variant"], "metric": row["metric"], "step": step, "mean": mean, "low": low, "high": high}
        for row in rows
        for step, mean, low, high in zip(row["steps"], row["mean"], row["low"], row["high"], strict=True)
    ]


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "MatplotlibFigure":
    """The figure of curves, a panel per metric.

    Args:
        rows: one per variant and metric: `variant`, `place` (of the variant, for its style), `metric` (`train_loss`,
            `loss` or `accuracy`), `steps`, `mean`, `low`, `high`.
        language: of the labels.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("a figure of curves needs at least one curve, got none.")
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    drawn = new_figure(4.6 * len(metrics) + 0.4, 4.4)
    panels = drawn.subplots(1, len(metrics), squeeze=False)[0]
    for axes, metric in zip(panels, metrics, strict=True):
        factor = 100.0 if metric == "accuracy" else 1.0
        for row in rows:
            if row["metric"] != metric:
                continue
            mean, low, high = ([factor * value for value in row[name]] for name in ("mean", "low", "high"))
            steps, drawn_as = row["steps"], style(row["place"])
            axes.plot(
                steps,
                mean,
                label=row["variant"],
                linewidth=1.1,
                markersize=4,
                # Few markers, and not one above another: they tell lines apart, points are not meant.
                markevery=(row["place"] % max(1, len(steps) // 5), max(1, len(steps) // 5)),
                **drawn_as,
            )
            axes.fill_between(steps, low, high, color=drawn_as["color"], alpha=0.12, linewidth=0)
        tidy(axes, across=phrases(language)("plot.step"), up=phrases(language)(f"plot.{metric}"))
    legend_below(drawn, panels[0])
    return finished(drawn)


def _figure_table(rows: Rows, t: Phrases) -> FigureTable:
    metrics = {"train_loss": "metric.train.loss", "loss": "metric.eval.loss", "accuracy": "metric.eval.accuracy"}
    header = ("common.model", "curves.metric", "common.steps", "figures.mean", "figures.least", "figures.largest")
    return FigureTable(
        header=tuple(map(t, header)),
        names=2,
        lines=[
            (
                row["variant"],
                t(metrics[row["metric"]]),
                str(row["steps"][at]),
                *(fixed(row[which][at], 4) for which in ("mean", "low", "high")),
            )
            for row in rows
            for at in spread(len(row["steps"]), _MOST_POINTS)
        ],
    )


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    return {"curves.csv": as_csv(long_curves(rows)), "curves.tex": latex(rows)}


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """Held-out measures, or the training loss where nothing was evaluated.

    Args:
        rows: those of the figure of curves: `variant`, `metric`, `steps`, `mean`, `low`, `high`.
    """
    drawn = [row for row in rows if row["steps"]]
    evaluated = [row for row in drawn if row["metric"] != "train_loss"]
    shown = evaluated or drawn
    steps = _some(sorted({step for row in shown for step in row["steps"]})[:-1])
    head = ["variant", "measure", *(f"step {step}" for step in steps), "last", "range", "best", "at step"]
    return tabular(
        "ll" + "r" * len(steps) + "rlrr",
        head,
        [_table_line(row, steps) for row in shown],
        (
            "Means over the seeds that have reached a step; losses in nats per token. Range: least and largest seed at the",
            "last step. Best: the best mean of any step, which is chosen after the fact; compare the last.",
        ),
    )


def _table_line(row: Mapping[str, Any], steps: Sequence[int]) -> list[str]:
    factor, digits = _FACTORS.get(row["metric"], 1.0), _DIGITS.get(row["metric"], 4)
    at = dict(zip(row["steps"], row["mean"], strict=True))
    best = (max if row["metric"] == "accuracy" else min)(at, key=lambda step: at[step])
    cells = [number(None if step not in at else factor * at[step], digits) for step in steps]
    last, low, high = (factor * row[name][-1] for name in ("mean", "low", "high"))
    spread = NONE if low == high else f"$[{low:.{digits}f}, {high:.{digits}f}]$"
    best_cells = [number(factor * at[best], digits), str(best)]
    return [escaped(row["variant"]), _MEASURES[row["metric"]], *cells, number(last, digits), spread, *best_cells]


def _some(steps: Sequence[int]) -> list[int]:
    """Some of the steps, evenly spread."""
    count = min(_STEPS, len(steps))
    return [steps[(place + 1) * len(steps) // count - 1] for place in range(count)]


class CurvesSection(Section):
    """Training curves. A live page's script draws them itself and requests more from `curves.json`."""

    order = 80
    pages = ("curves", MODEL_PAGE)
    figures = (
        Figure(
            name="curves",
            caption="Training curves: mean over seeds, band from least to largest.",
            rows=curve_rows,
            numbers=("mean",),
            draw=figure,
            table=_figure_table,
            files=_files,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        selection = view.selection if view.variant is None else replace(view.selection, variants=(view.variant,))
        found = curves(snapshot, selection)
        steps, lines = table(found)
        choices = [(place, name) for place, name in enumerate(snapshot.variants)] if view.variant is None else []
        form_action, _, query = view.link(view.page).partition("?")
        hidden = [tuple(pair.split("=", 1)) for pair in query.split("&") if "=" in pair]
        if view.variant is not None:
            hidden.append(("variant", view.variant))
        return {
            "curves": found,
            "chart": chart_of(found),
            "curve_steps": steps,
            "curve_rows": lines,
            "metrics": METRICS,
            "choices": choices,
            "source": view.link("curves.json") if view.is_live else None,
            "form_action": form_action,
            "form_hidden": hidden,
        }
