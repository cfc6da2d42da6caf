"""Training curves: the mean over seeds and the band from the least to the largest."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.plots.style import finished, legend_below, new_figure, style, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
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
