"""Geometry of a chart of curves for inline SVG, shown in reports and on pages before a script draws the chart.

Lines live in a box of 1000 by 1000 that is stretched to its place; ticks stand at per cent of the place, so that their texts
are not stretched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.reporting.formats.numbers import quantity, ticks, trimmed
from addnorm.reporting.sections.curves.reading import Curves, Series

_SPAN = 1000.0
Ticks = tuple[tuple[float, str], ...]
"""Marks on an axis: per cent from the left or from the top, and text."""


@dataclass(frozen=True, kw_only=True)
class DrawnSeries:
    """One line."""

    series: Series
    points: str
    """For a polyline."""
    raw: str
    """The same before smoothing; empty without it."""
    band: str
    """For a polygon; empty without a band."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """All parts of a chart."""

    lines: tuple[DrawnSeries, ...]
    x_ticks: Ticks
    y_ticks: Ticks


def chart_of(drawn: Curves) -> Chart | None:
    """The curves as a chart; None if there is nothing to draw."""
    left, is_log = drawn.selection.first, drawn.selection.is_log
    shown = [line for line in drawn.series if line.xs]
    values = [v for line in shown for v in (*line.values, *line.low, *line.high) if not is_log or v > 0]
    if not values:
        return None
    right = drawn.right if drawn.right > left else left + 1
    low, high = drawn.limits or _bounds(values)
    bottom, top = (math.log(low), math.log(high)) if is_log else (low, high)

    def share(value: float) -> float:
        """0 at the bottom, 1 at the top."""
        return ((math.log(value) if is_log else value) - bottom) / (top - bottom)

    def points(xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        # Points outside the window stay: the SVG clips them, and a line then leaves the chart where it really does.
        pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if not is_log or y > 0]
        return [f"{_SPAN * (x - left) / (right - left):.1f},{_SPAN * (1 - share(y)):.1f}" for x, y in pairs]

    lines = []
    for line in shown:
        has_band = line.low and not (is_log and min(line.low) <= 0)
        band = [*points(line.xs, line.high), *reversed(points(line.xs, line.low))] if has_band else []
        raw = points(line.xs, line.raw) if line.raw else []
        drawn_points = " ".join(points(line.xs, line.values))
        lines.append(DrawnSeries(series=line, points=drawn_points, raw=" ".join(raw), band=" ".join(band)))
    marks = _decades(low, high) if is_log else ticks(low, high, 5)
    return Chart(
        lines=tuple(lines),
        x_ticks=tuple((100 * (x - left) / (right - left), quantity(x)) for x in ticks(left, right, 5)),
        y_ticks=tuple((100 * (1 - share(value)), _short(value)) for value in marks),
    )


def _decades(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    round_numbers = [f * 10.0**d for d in decades for f in (1, 2, 5) if low <= f * 10.0**d <= high]
    return round_numbers if len(round_numbers) > 1 else ticks(low, high, 4)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        pad = abs(low) * 0.05 or 1.0
        return low - pad if low <= 0 else low * 0.95, high + pad
    return low, high


def _short(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return trimmed(value, 4)
    return f"{value:.2g}".replace("-", "−")
