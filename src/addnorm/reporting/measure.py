"""A measure per layer: its key in `insight.json`, its texts, and its figure over depth.

A measure is one file of `measures/` that defines one subclass of `LayerMeasure`. The panels of a model's page, the report's
figures and tables, and the tables of `addnorm inspect` are derived from these files. Texts are English here; translations are
`figures.NAME`, `measure.NAME.panel_title` and `measure.NAME.axis_label` of the catalogue.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from addnorm.reporting.drawing.figure_style import finished, legend_below, new_figure, style, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

LayerRow = Mapping[str, Any]
"""`variant`, `place` (for its style), `layer` (0-based), `start` and `end` (a value per seed, None where not finite)."""


class LayerMeasure:
    """A number that each layer of a model has, before and after training. Its name is that of its file."""

    order: ClassVar[int]
    """Place among the measures."""
    key: ClassVar[str]
    """Key in the rows of `insight.json`."""
    companions: ClassVar[tuple[str, ...]] = ()
    """Further keys that `insight.csv` lists after it."""
    caption: ClassVar[str]
    """Of its figure in the report."""
    panel_title: ClassVar[str]
    """Above its panel on a model's page."""
    axis_label: ClassVar[str]
    """Of its figure's vertical axis."""
    columns: ClassVar[Mapping[str, str]]
    """Titles of its columns in a table of layers, by key; `KEY_start` is the value before training."""
    legend: ClassVar[str]
    """Explanation of the column, for a terminal."""
    scale: ClassVar[Literal["linear", "log"]] = "linear"
    """Of its figure; values that are not positive are left out of a logarithmic one."""
    panel_scale: ClassVar[Literal["linear", "log"]] = "linear"
    """Of its panel; `log` applies only where the values span more than a factor of ten."""
    moments: ClassVar[tuple[Literal["start", "end"], ...]] = ("start", "end")
    """Panels of its figure: before and after training."""

    @property
    def name(self) -> str:
        """The measure's name: its file's, and its figure's."""
        return type(self).__module__.rpartition(".")[2]

    def figure(self, rows: Sequence[LayerRow], language: str = "en") -> "MatplotlibFigure":
        """Draw the measure over depth. Lines are means over seeds, whiskers reach from the least to the largest.

        Args:
            rows: one per variant and layer.
            language: of the labels.

        Raises:
            ValueError: there are no rows.
            UnknownName: unknown language.
        """
        t = phrases(language)
        if not rows:
            raise ValueError(f"a figure of {self.name} needs at least one layer, got none.")
        known = [moment for moment in self.moments if any(row[moment] for row in rows)]
        moments = known or list(self.moments)  # checkpoints have no start
        drawn = new_figure(0.8 + 4.2 * len(moments), 4.2)
        panels = drawn.subplots(1, len(moments), sharey=True, squeeze=False)[0]
        variants = list(dict.fromkeys(row["variant"] for row in rows))
        for axes, moment in zip(panels, moments, strict=True):
            axes.set_yscale(self.scale)
            for order, variant in enumerate(variants):
                of_variant = sorted((row for row in rows if row["variant"] == variant), key=lambda row: row["layer"])
                shown = [(row["layer"], values) for row in of_variant if (values := _drawable(row[moment], self.scale))]
                means = [sum(values) / len(values) for _, values in shown]
                aside = 0.16 * (
                    order / max(1, len(variants) - 1) - 0.5
                )  # offset, so that whiskers do not hide each other
                # A mean of equal values may differ from them by rounding, and no whisker is shorter than nothing.
                axes.errorbar(
                    [layer + aside for layer, _ in shown],
                    means,
                    yerr=[
                        [max(0.0, mean - min(values)) for mean, (_, values) in zip(means, shown, strict=True)],
                        [max(0.0, max(values) - mean) for mean, (_, values) in zip(means, shown, strict=True)],
                    ],
                    label=variant,
                    linewidth=1.1,
                    elinewidth=0.7,
                    markersize=4.5,
                    **style(of_variant[0]["place"]),
                )
            layers = sorted({row["layer"] for row in rows})
            axes.set_xticks(layers[:: max(1, len(layers) // 12)])
            zero = [name for name in variants if self.scale == "log" and _is_zero(rows, name, moment)]
            if zero:
                axes.text(0.02, 0.02, f"= 0: {', '.join(zero)}", transform=axes.transAxes, fontsize=8)
            if axes.dataLim.height == 0 and self.scale == "linear":
                axes.set_ylim(0, 1)  # all values are equal: show the axis of a share, not a magnified rounding error
            title = t("plot.at_start" if moment == "start" else "plot.at_end")
            tidy(axes, title=title, across=t("plot.layer"))
        panels[0].set_ylabel(t.translation(f"measure.{self.name}.axis_label", self.axis_label), fontsize=9)
        legend_below(drawn, panels[0])
        return finished(drawn)


def _drawable(values: Sequence[float | None], scale: str) -> list[float]:
    return [value for value in values if value is not None and (scale == "linear" or value > 0)]


def _is_zero(rows: Sequence[LayerRow], variant: str, moment: str) -> bool:
    """True if the variant has values, and none of them is above zero."""
    values = [value for row in rows if row["variant"] == variant for value in row[moment]]
    return bool(values) and not any(values)
