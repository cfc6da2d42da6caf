"""A measure per layer: its key in `insight.json`, its texts, and its figure over depth.

A measure is one file of `measures/` that defines one subclass of `LayerMeasure`. The panels of a model's page, the report's
figures and tables, and the tables of `addnorm inspect` are derived from these files. Texts are English here; translations are
`figures.NAME`, `measure.NAME.panel_title` and `measure.NAME.axis_label` of the catalogue.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from addnorm.reporting.drawing.figure_style import figure_of, legend_below, new_figure, tidy, with_whiskers
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.numbers import mean
from addnorm.words import Phrases

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
        return figure_of(f"layer of {self.name}")(self._arrange)(rows, language)

    def _arrange(self, rows: Sequence[LayerRow], t: Phrases) -> "MatplotlibFigure":
        known = [moment for moment in self.moments if any(row[moment] for row in rows)]
        moments = known or list(self.moments)  # checkpoints have no start
        drawn = new_figure(0.8 + 4.2 * len(moments), 4.2)
        panels = drawn.subplots(1, len(moments), sharey=True, squeeze=False)[0]
        variants = grouped(rows, lambda row: str(row["variant"]))
        for axes, moment in zip(panels, moments, strict=True):
            axes.set_yscale(self.scale)
            for order, (variant, of_variant) in enumerate(variants):
                # Lines are offset, so that whiskers do not hide each other.
                aside = 0.16 * (order / max(1, len(variants) - 1) - 0.5)
                points = []
                for row in sorted(of_variant, key=lambda row: row["layer"]):
                    if values := _drawable(row[moment], self.scale):
                        # A mean of equal values may differ from them by rounding, and no whisker is shorter than nothing.
                        middle = mean(values)
                        whiskers = max(0.0, middle - min(values)), max(0.0, max(values) - middle)
                        points.append((row["layer"] + aside, middle, *whiskers))
                with_whiskers(axes, of_variant[0]["place"], variant, points)
            layers = sorted({row["layer"] for row in rows})
            axes.set_xticks(layers[:: max(1, len(layers) // 12)])
            zero = [name for name, of in variants if self.scale == "log" and _is_zero(of, moment)]
            if zero:
                axes.text(0.02, 0.02, f"= 0: {', '.join(zero)}", transform=axes.transAxes, fontsize=8)
            if axes.dataLim.height == 0 and self.scale == "linear":
                axes.set_ylim(0, 1)  # all values are equal: show the axis of a share, not a magnified rounding error
            title = t("plot.at_start" if moment == "start" else "plot.at_end")
            tidy(axes, title=title, across=t("plot.layer"))
        panels[0].set_ylabel(t.translation(f"measure.{self.name}.axis_label", self.axis_label), fontsize=9)
        legend_below(drawn, panels[0])
        return drawn


def _drawable(values: Sequence[float | None], scale: str) -> list[float]:
    return [value for value in values if value is not None and (scale == "linear" or value > 0)]


def _is_zero(rows: Sequence[LayerRow], moment: str) -> bool:
    """True if a variant's rows have values, and none of them is above zero."""
    values = [value for row in rows for value in row[moment]]
    return bool(values) and not any(values)
