"""Files of what a page of curves shows: CSV, SVG or PNG."""

from collections.abc import Callable, Sequence
from typing import Literal

from addnorm.reporting.drawing.figure_style import drawable, finished, legend_below, new_figure, style, tidy
from addnorm.reporting.drawing.image import saved
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.sections.curves.reading import Curves
from addnorm.words import Phrases, phrases

Kind = Literal["csv", "svg", "png"]
_COLUMNS = ("metric", "variant", "seed", "minus", "step", "axis", "x", "value", "raw", "low", "high")
"""Of the CSV file, also before any run has logged a step."""


def download(
    drawn: Sequence[Curves], kind: Kind, language: str, titles: Callable[[str, Phrases], str] | None = None
) -> bytes:
    """The charts as one file.

    Args:
        drawn: at least one chart.
        kind: of the file.
        language: of the labels.
        titles: name of a metric; that of a study's unless given.
    """
    if kind == "csv":
        return _csv(drawn).encode()
    return _drawn(
        drawn, kind, drawable(language), titles or (lambda metric, t: t(f"metric.{metric}", unit=t("text.nats")))
    )


def _csv(drawn: Sequence[Curves]) -> str:
    rows = [
        {
            "metric": each.metric,
            "variant": line.variant,
            "seed": line.seed,
            "minus": each.selection.versus,
            "step": line.steps[at],
            "axis": each.selection.x,
            "x": line.xs[at],
            "value": line.values[at],
            "raw": line.raw[at] if line.raw else line.values[at],
            "low": line.low[at] if line.low else None,
            "high": line.high[at] if line.high else None,
        }
        for each in drawn
        for line in each.series
        for at in range(len(line.steps))
    ]
    return ResultTable([Column(key) for key in _COLUMNS], rows).csv()


def _drawn(charts: Sequence[Curves], kind: str, language: str, titles: Callable[[str, Phrases], str]) -> bytes:
    t = phrases(language)
    drawn = new_figure(4.8 * len(charts) + 0.4, 4.4)
    panels = drawn.subplots(1, len(charts), squeeze=False)[0]
    for axes, each in zip(panels, charts, strict=True):
        asked = each.selection
        for line in each.series:
            look = {**style(line.style), "marker": ""}
            if line.raw:
                axes.plot(line.xs, line.raw, linewidth=0.6, alpha=0.35, **look)
            axes.plot(line.xs, line.values, label=line.label, linewidth=1.2, **look)
            if line.low:
                axes.fill_between(line.xs, line.low, line.high, color=look["color"], alpha=0.12, linewidth=0)
        if asked.is_log:
            axes.set_yscale("log")
        if each.limits is not None:
            axes.set_ylim(*each.limits)
        axes.set_xlim(asked.first, max(each.right, asked.first + 1))
        up = titles(each.metric, t)
        tidy(
            axes,
            across=t(f"axis.{asked.x}"),
            up=t("curves.minus", metric=up, name=asked.versus) if asked.versus else up,
        )
    legend_below(drawn, panels[0])
    return saved(finished(drawn), kind)
