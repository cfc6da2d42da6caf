"""Training curves: any set of models, per seed or as mean and band, thinned to what a screen can show.

Everything that a chart shows is computed here, so that the page with and without script and its downloads show the same.
"""

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from addnorm.reporting.drawing.line_styles import dash, distinct
from addnorm.reporting.formats.measured import RankingFormats
from addnorm.reporting.reading.study_files import counted_costs
from addnorm.reporting.sections.curves.axis import RunAxis, axis_of
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import Selection
from addnorm.store import Damaged
from addnorm.words import Phrases

TABLE_METRICS = ("eval.loss",)
"""The metric of a table of runs: its column."""
FIRST_SHOWN = 8
"""Models that are drawn before the visitor selects any."""
MOST_SHOWN = 60
"""Models that a page draws at once."""
PARTS = 300
"""Points per curve at most, apart from those next to the window."""
CONFIDENCE = 0.95
"""Of the band around a mean difference, at each point by itself."""
_FEWEST_SEEDS = 3
"""Below, a band of differences runs from the least to the largest."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, and its band where it has one."""

    label: str
    variant: str
    style: int
    """Place of the colour: the variant's in the study, or the seed's where one variant is drawn by seeds."""
    pattern: int
    """Of dashes, 0 to 3."""
    seed: int | None
    steps: tuple[int, ...]
    xs: tuple[float, ...]
    """Places on the x axis."""
    values: tuple[float, ...]
    """Smoothed, if that was asked for."""
    raw: tuple[float, ...] = ()
    """Values before smoothing; empty without it."""
    low: tuple[float, ...] = ()
    """Lower end of the band; empty where there is no band."""
    high: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines of one chart."""

    selection: Selection
    metric: str
    series: tuple[Series, ...]
    last_x: float
    """End of the longest run on the x axis."""
    steps_per_point: int
    """Number of steps that each point averages; 1 if every value is drawn by itself."""
    limits: tuple[float, float] | None
    """Of y; None without values."""

    @property
    def right(self) -> float:
        """Right end of what is shown."""
        return self.last_x if self.selection.last is None else min(self.selection.last, self.last_x)

    def to_json(self) -> dict[str, Any]:
        """JSON for the page's script: the lines and the table."""
        places, lines = table(self)
        return {
            "table": {"steps": places, "rows": [{"label": label, "values": values} for label, values in lines]},
            "metric": self.metric,
            "mode": self.selection.mode,
            "log": "log" if self.selection.is_log else "linear",
            "x": self.selection.x,
            "lastStep": self.last_x,
            "stepsPerPoint": self.steps_per_point,
            "limits": self.limits,
            "series": [{**vars(line), "dash": line.pattern} for line in self.series],
        }


def chosen(snapshot: Snapshot, selection: Selection, *, most: int | None = MOST_SHOWN) -> Selection:
    """The selection with its models settled: those asked for that exist, else the references and the best ranked."""
    versus = selection.versus if selection.versus in snapshot.variants else ""
    known = tuple(name for name in snapshot.variants if name in selection.variants)[:most]
    if known:
        return replace(selection, variants=known, versus=versus)
    started = [name for name in snapshot.variants if any(run.step > 0 for run in snapshot.of(name))]
    best = [row.variant for row in snapshot.ranking.variants] if snapshot.ranking is not None else started
    first = [name for name in dict.fromkeys([*snapshot.references, *best, *started]) if name in started][:FIRST_SHOWN]
    variants = tuple(name for name in snapshot.variants if name in first)
    return replace(selection, variants=variants, versus=versus)


def charts(snapshot: Snapshot, selection: Selection) -> tuple[Curves, ...]:
    """Read what the selection asks for, a chart per metric."""
    metrics = selection.metrics if snapshot.table is None else TABLE_METRICS
    return tuple(_with_distinct_looks(curves(snapshot, replace(selection, metrics=(metric,)))) for metric in metrics)


def metric_title(snapshot: Snapshot, metric: str, t: Phrases) -> str:
    """A metric as charts name it; of a table, the column with its unit."""
    forms = RankingFormats.of_measure(snapshot.measure, t)
    return t(f"metric.{metric}", unit=forms.unit) if snapshot.table is None else forms.named_unit


def _with_distinct_looks(drawn: Curves) -> Curves:
    """With colours and patterns that differ between the models that are drawn; a study may have more models than there are."""
    asked = drawn.selection
    if len(asked.variants) == 1:
        return drawn
    by_seeds = asked.mode == "seeds"
    looks = distinct(list(dict.fromkeys(line.style for line in drawn.series)), by_colour=by_seeds)
    lines = [
        replace(line, style=looks[line.style][0], pattern=line.pattern if by_seeds else looks[line.style][1])
        for line in drawn.series
    ]
    return replace(drawn, series=tuple(lines))


def curves(snapshot: Snapshot, selection: Selection, *, most: int | None = MOST_SHOWN) -> Curves:
    """Read the selection's first metric.

    Args:
        snapshot: the study.
        selection: what to read.
        most: largest number of models; None for all.
    """
    reader = _Reader(snapshot, chosen(snapshot, selection, most=most))
    return reader.read()


# The index averages a run's steps in bins of `width` steps, so that a curve has at most some PARTS points, whatever
# the window. Means over seeds, and differences to another model, are taken at equal steps only: a step that a seed
# has not reached is a mean over the others, and a difference without a partner is left out. Smoothing comes last, on
# what is drawn.
#
# Points next to the window belong to it: without them a zoomed line would begin in the air.
class _Reader:
    def __init__(self, snapshot: Snapshot, selection: Selection) -> None:
        self.snapshot, self.selection = snapshot, selection
        self.index = snapshot.curves
        self.metric = selection.metrics[0]

    def read(self) -> Curves:
        asked = self.selection
        # Every run has a line of its own, but means are of the seeds that the ranking compares.
        of = self.snapshot.of if asked.mode == "seeds" else self.snapshot.first_batch
        runs = [run for name in asked.variants for run in of(name)]
        costs = counted_costs(self.snapshot) if asked.x == "flops" else {}
        axes = {run.run: axis_of(run, asked.x, self.index, costs) for run in runs}
        last_x = max((axis.place(run.steps) for run in runs if (axis := axes[run.run]) is not None), default=0.0)
        base = {r.seed: self._points(r, None) for r in self.snapshot.of(asked.versus)} if asked.versus else {}
        series: list[Series] = []
        for name in asked.variants:
            if name != asked.versus:
                lines = [
                    line
                    for run in of(name)
                    if (axis := axes[run.run]) is not None and (line := self._line(run, axis, base)) is not None
                ]
                series += lines if asked.mode == "seeds" else self._mean(name, lines)
        series = [smoothed(line, asked.smooth) for line in series]
        curves = Curves(
            selection=asked,
            metric=self.metric,
            series=tuple(series),
            last_x=last_x,
            steps_per_point=max((self._width(run, axes[run.run]) for run in runs), default=1),
            limits=None,
        )
        return replace(curves, limits=limits(curves))

    def _window(self, run: RunView, axis: RunAxis | None) -> tuple[int, int]:
        """First and last step of the run that are in view."""
        if axis is None:
            return 0, run.steps
        last = run.steps if self.selection.last is None else min(run.steps, math.ceil(axis.step(self.selection.last)))
        return max(0, min(math.floor(axis.step(self.selection.first)), last)), last

    def _width(self, run: RunView, axis: RunAxis | None) -> int:
        first, last = self._window(run, axis)
        return max(1, math.ceil((last - first + 1) / PARTS))

    def _points(self, run: RunView, axis: RunAxis | None) -> dict[int, float]:
        """Values in view by step, with the next ones on both sides, so that lines leave the chart at its edges."""
        first, last = self._window(run, axis)
        width = self._width(run, axis)
        if run.step == 0:
            return {}
        try:
            read = self.index.thinned(
                run.run,
                self.metric,
                first=first - width,
                last=last + width,
                parts=math.ceil((last - first + 1) / width) + 2,
            )
            neighbours = self.index.neighbours(run.run, self.metric, first=first, last=last)
        except Damaged:  # the run is shown as blocked, with this reason
            return {}
        sides = [
            point
            for point in neighbours
            if (point[0] < first and not any(step < first for step, _ in read))
            or (point[0] > last and not any(step > last for step, _ in read))
        ]
        return dict(sorted([*read, *sides]))

    def _line(self, run: RunView, axis: RunAxis, base: dict[int, dict[int, float]]) -> Series | None:
        points = self._points(run, axis)
        if self.selection.versus:
            theirs = base.get(run.seed, {})
            points = {step: value - theirs[step] for step, value in points.items() if step in theirs}
        if not points:
            return None
        seeds = [other.seed for other in self.snapshot.of(run.variant)].index(run.seed)
        place = self.snapshot.variants.index(run.variant)
        is_alone = len(self.selection.variants) == 1
        style = seeds if is_alone else place
        return Series(
            label=f"{run.variant} · {run.seed}",
            variant=run.variant,
            style=style,
            pattern=dash(style) if is_alone else seeds % 4,
            seed=run.seed,
            steps=tuple(points),
            xs=tuple(axis.place(step) for step in points),
            values=tuple(points.values()),
        )

    def _mean(self, variant: str, lines: Sequence[Series]) -> list[Series]:
        """Mean over the seeds that have reached each step, and its band."""
        if not lines:
            return []
        tables = [dict(zip(line.steps, zip(line.xs, line.values, strict=True), strict=True)) for line in lines]
        steps = sorted(set().union(*tables))
        columns = [[table[step] for table in tables if step in table] for step in steps]
        values = [[value for _, value in column] for column in columns]
        ends = [_interval(column) if self.selection.versus else (min(column), max(column)) for column in values]
        place = self.snapshot.variants.index(variant)
        return [
            Series(
                label=variant,
                variant=variant,
                style=place,
                pattern=dash(place),
                seed=None,
                steps=tuple(steps),
                xs=tuple(sum(x for x, _ in column) / len(column) for column in columns),
                values=tuple(sum(column) / len(column) for column in values),
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
            )
        ]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean of paired differences; least and largest of fewer than three."""
    count = len(values)
    if count < _FEWEST_SEEDS:
        return min(values), max(values)
    from addnorm.statistics.over_seeds import half_interval  # scipy: half a second for every command that prints

    mean, reach = sum(values) / count, half_interval(values, CONFIDENCE)
    return mean - reach, mean + reach


def smoothed(line: Series, weight: float) -> Series:
    """The line as a mean over its points whose weights decay exponentially to both sides, so that it does not lag behind."""
    if not weight:
        return line
    # Two one-sided means, joined: each counts the point itself, so it is subtracted once. A one-sided mean lags
    # behind by some 1/(1 - weight) points, which would move every drop of the loss to the right.
    before = _decaying(line.values, weight)
    after = _decaying(line.values[::-1], weight)[::-1]
    values = tuple(
        (back + forth - value) / (count + beyond - 1)
        for (back, count), (forth, beyond), value in zip(before, after, line.values, strict=True)
    )
    return replace(line, values=values, raw=line.values)


def _decaying(values: Sequence[float], weight: float) -> list[tuple[float, float]]:
    """Sums of the values so far and of their weights, where each step back multiplies by `weight`."""
    sums, total, count = [], 0.0, 0.0
    for value in values:
        total, count = weight * total + value, weight * count + 1
        sums.append((total, count))
    return sums


def limits(drawn: Curves) -> tuple[float, float] | None:
    """Limits of y for what is in view; None without values.

    Robust limits leave out the first fifth of the runs, unless the view has been zoomed, and the least and largest per cent.
    """
    asked = drawn.selection
    is_robust = asked.y == "robust"
    reached = max((line.xs[-1] for line in drawn.series), default=0.0)
    is_zoomed = asked.first > 0 or asked.last is not None
    left = asked.first if is_zoomed or not is_robust else 0.2 * min(reached, drawn.last_x)
    nearby = (value for line in drawn.series for value in line.values)
    shown = sorted(_in_view(drawn, left)) or sorted(nearby)
    shown = [value for value in shown if not asked.is_log or value > 0]
    if not shown:
        return None
    skipped = len(shown) // 100 if is_robust else 0
    low, high = shown[skipped], shown[-1 - skipped]
    if asked.versus:
        low, high = min(low, 0.0), max(high, 0.0)
    if asked.is_log:
        return low / 1.02, high * 1.02
    pad = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    return low - pad, high + pad


def _in_view(drawn: Curves, left: float) -> Iterator[float]:
    """Values and ends of bands in view, with those where a line enters and leaves it."""
    for line in drawn.series:
        for values in (line.values, line.low, line.high):
            inside = [value for x, value in zip(line.xs, values, strict=False) if left <= x <= drawn.right]
            edges = [_crossing(line.xs, values, edge) for edge in (left, drawn.right)] if values else []
            yield from (*inside, *(value for value in edges if value is not None))


def _crossing(xs: Sequence[float], values: Sequence[float], edge: float) -> float | None:
    """The line's value at a place between two of its points; None elsewhere."""
    at = bisect.bisect_left(xs, edge)
    if not 0 < at < len(xs):
        return None
    share = (edge - xs[at - 1]) / (xs[at] - xs[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])


def table(drawn: Curves, count: int = 8) -> tuple[tuple[float, ...], tuple[tuple[str, tuple[float | None, ...]], ...]]:
    """The table behind the chart: up to `count` places, and every line's value at the last point up to each."""
    reached = sorted({x for line in drawn.series for x in line.xs if drawn.selection.first <= x <= drawn.right})
    if not reached:
        return (), ()
    picked = tuple(dict.fromkeys(reached[round(i * (len(reached) - 1) / (count - 1))] for i in range(count)))
    return picked, tuple((line.label, tuple(_at(line, place) for place in picked)) for line in drawn.series)


def _at(line: Series, place: float) -> float | None:
    if place > line.xs[-1]:
        return None
    return next((v for x, v in zip(reversed(line.xs), reversed(line.values), strict=True) if x <= place), None)
