"""Chart geometry for inline SVG, shown in reports and on pages before a script draws the chart.

Lines live in a box of 1000 by 1000 that is stretched to its place; ticks stand at per cent of the place, so that their texts
are not stretched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from addnorm.reporting.formats.numbers import quantity, trimmed

_SPAN = 1000.0


@runtime_checkable
class ChartLine(Protocol):
    """A line to draw, with a band if `low` and `high` are not empty."""

    @property
    def label(self) -> str: ...
    @property
    def style(self) -> int: ...
    @property
    def pattern(self) -> int: ...
    @property
    def xs(self) -> Sequence[float]: ...
    @property
    def raw(self) -> Sequence[float]: ...
    @property
    def values(self) -> Sequence[float]: ...
    @property
    def low(self) -> Sequence[float]: ...
    @property
    def high(self) -> Sequence[float]: ...


@dataclass(frozen=True, kw_only=True)
class ChartPath:
    """One line."""

    label: str
    style: int
    pattern: int
    points: str
    """For a polyline."""
    raw: str
    """The same before smoothing; empty without it."""
    band: str
    """For a polygon; empty without a band."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A mark on an axis."""

    at: float
    """Per cent from the left or from the top."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """All parts of a chart."""

    paths: tuple[ChartPath, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def chart(
    lines: Sequence[ChartLine], left: float, right: float, *, is_log: bool, limits: tuple[float, float] | None = None
) -> Chart | None:
    """Lines between two places on the x axis as a chart; None if there is nothing to draw.

    Args:
        lines: what to draw; points outside are where a line leaves the chart.
        left: left end of the x axis.
        right: right end.
        is_log: whether y is logarithmic; values that are not positive are left out then.
        limits: of y; without them, all values fit.
    """
    shown = [line for line in lines if line.xs]
    values = [v for line in shown for v in (*line.values, *line.low, *line.high) if not is_log or v > 0]
    if not values:
        return None
    right = right if right > left else left + 1
    # Points outside the window stay: the SVG clips them, and a line then leaves the chart where it really does.
    scale = _Scale(*(limits or _bounds(values)), is_log=is_log)

    def points(xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if not is_log or y > 0]
        return [f"{_SPAN * (x - left) / (right - left):.1f},{_SPAN * (1 - scale.share(y)):.1f}" for x, y in pairs]

    paths = []
    for line in shown:
        band = ""
        if line.low and not (is_log and min(line.low) <= 0):
            band = " ".join([*points(line.xs, line.high), *reversed(points(line.xs, line.low))])
        paths.append(
            ChartPath(
                label=line.label,
                style=line.style,
                pattern=line.pattern,
                points=" ".join(points(line.xs, line.values)),
                raw=" ".join(points(line.xs, line.raw)) if line.raw else "",
                band=band,
            )
        )
    return Chart(
        paths=tuple(paths),
        x_ticks=tuple(Tick(at=100 * (x - left) / (right - left), text=quantity(x)) for x in ticks(left, right, 5)),
        y_ticks=tuple(Tick(at=100 * (1 - scale.share(value)), text=_short(value)) for value in scale.ticks()),
    )


def spark(steps: Sequence[int], values: Sequence[float], steps_in_all: int) -> str:
    """A small line's points in a box of 100 by 28: the whole run's width; in height, what follows the first tenth, so that a
    steep start does not flatten all the rest."""
    if len(values) < 2 or steps_in_all <= 0:
        return ""
    low, high = min(values), max(values[len(values) // 10 :])
    height = high - low or 1.0
    return " ".join(
        f"{100 * step / steps_in_all:.1f},{26 - 24 * min(1.0, (value - low) / height):.1f}"
        for step, value in zip(steps, values, strict=True)
    )


def ticks(low: float | int, high: float | int, count: int) -> list[float]:
    """Round numbers between two others, about `count` of them."""
    if not high > low:
        return [float(low)]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


class _Scale:
    def __init__(self, low: float, high: float, *, is_log: bool) -> None:
        self.low, self.high, self.is_log = low, high, is_log

    def share(self, value: float) -> float:
        """0 at the bottom, 1 at the top."""
        if self.is_log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if not self.is_log:
            return ticks(self.low, self.high, 5)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        round_numbers = [f * 10.0**d for d in decades for f in (1, 2, 5) if self.low <= f * 10.0**d <= self.high]
        return round_numbers if len(round_numbers) > 1 else ticks(self.low, self.high, 4)


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
