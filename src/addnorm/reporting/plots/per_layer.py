"""What the figures of one measure over depth share: a panel for the start, one for the end, a line per variant."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from addnorm.reporting.plots.style import finished, legend_below, new_figure, style, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
"""`variant`, `place` (for its style), `layer` (0-based), `start` and `end` (a value per seed, None where not finite)."""


def draw(
    rows: Sequence[Row], measure: str, language: str, *, scale: Literal["linear", "log"], when: Sequence[str]
) -> "Figure":
    """A measure per layer. Lines are means over seeds, whiskers reach from the least to the largest.

    Args:
        measure: its name among the labels.
        scale: of the vertical axis; values that are not positive cannot be drawn on a logarithmic one and are left out.
        when: `start`, `end` or both.

    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError(f"a figure of {measure} needs at least one layer, got none.")
    drawn = new_figure(0.8 + 4.2 * len(when), 4.2)
    panels = drawn.subplots(1, len(when), sharey=True, squeeze=False)[0]
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    for axes, moment in zip(panels, when, strict=True):
        axes.set_yscale(scale)
        for order, variant in enumerate(variants):
            mine = sorted((row for row in rows if row["variant"] == variant), key=lambda row: row["layer"])
            known = [(row["layer"], values) for row in mine if (values := _drawable(row[moment], scale))]
            means = [sum(values) / len(values) for _, values in known]
            aside = 0.16 * (order / max(1, len(variants) - 1) - 0.5)  # so that whiskers do not hide each other
            axes.errorbar(
                [layer + aside for layer, _ in known],
                means,
                yerr=[
                    [mean - min(values) for mean, (_, values) in zip(means, known, strict=True)],
                    [max(values) - mean for mean, (_, values) in zip(means, known, strict=True)],
                ],
                label=variant,
                linewidth=1.1,
                elinewidth=0.7,
                markersize=4.5,
                **style(mine[0]["place"]),
            )
        layers = sorted({row["layer"] for row in rows})
        axes.set_xticks(layers[:: max(1, len(layers) // 12)])
        zero = [name for name in variants if scale == "log" and not _reaches(rows, name, moment)]
        if zero:
            axes.text(0.02, 0.02, f"= 0: {', '.join(zero)}", transform=axes.transAxes, fontsize=8)
        if axes.dataLim.height == 0 and scale == "linear":
            axes.set_ylim(0, 1)  # all alike: the axis of a share, not a magnified nothing
        title = phrases(language)("plot.at_start" if moment == "start" else "plot.at_end")
        tidy(axes, title=title, across=phrases(language)("plot.layer"))
    panels[0].set_ylabel(phrases(language)(f"plot.{measure}"), fontsize=9)
    legend_below(drawn, panels[0])
    return finished(drawn)


def _drawable(values: Sequence[float | None], scale: str) -> list[float]:
    return [value for value in values if value is not None and (scale == "linear" or value > 0)]


def _reaches(rows: Sequence[Row], variant: str, moment: str) -> bool:
    """Whether any of the variant's values is above zero."""
    return any(value for row in rows if row["variant"] == variant for value in row[moment])
