"""The measures per layer that `addnorm inspect` takes: each one's key in `insight.json`, its texts, and its figure over depth.

A measure is one entry of the table at the end. The panels of a model's page, the report's figures and tables, and the tables of
`addnorm inspect` are derived from it. Texts are English here; translations are `figures.NAME`, `measure.NAME.panel_title` and
`measure.NAME.axis_label` of the catalogue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from addnorm.reporting.drawing.figure_style import figure_of, legend_below, new_figure, tidy, with_whiskers
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.numbers import mean
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

LayerRow = Mapping[str, Any]
"""`variant`, `place` (for its style), `layer` (0-based), `start` and `end` (a value per seed, None where not finite)."""


@dataclass(frozen=True, kw_only=True)
class LayerMeasure:
    """A number that each layer of a model has, before and after training."""

    name: str
    """The measure's name, and its figure's."""
    key: str
    """Key in the rows of `insight.json`."""
    companions: tuple[str, ...] = ()
    """Further keys that `insight.csv` lists after it."""
    caption: str
    """Of its figure in the report."""
    panel_title: str
    """Above its panel on a model's page."""
    axis_label: str
    """Of its figure's vertical axis."""
    columns: Mapping[str, str]
    """Titles of its columns in a table of layers, by key; `KEY_start` is the value before training."""
    legend: str
    """Explanation of the column, for a terminal."""
    scale: Literal["linear", "log"] = "linear"
    """Of its figure; values that are not positive are left out of a logarithmic one."""
    panel_scale: Literal["linear", "log"] = "linear"
    """Of its panel; `log` applies only where the values span more than a factor of ten."""
    moments: tuple[Literal["start", "end"], ...] = ("start", "end")
    """Panels of its figure: before and after training."""

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


def measures() -> Mapping[str, LayerMeasure]:
    """All measures by name, in their order."""
    return {measure.name: measure for measure in _MEASURES}


_MEASURES = (
    LayerMeasure(
        # Gradient norm of each layer's parameters. Post-norm's small gradients in early layers are on the left.
        name="gradient_norm",
        key="gradient",
        caption="Gradient norm of each layer; whiskers from least to largest seed.",
        panel_title="Gradient norm of the parameters",
        axis_label="gradient norm of the layer",
        columns={"gradient_start": "gradient at the start", "gradient": "at the end"},
        legend="gradient: norm over the layer's parameters",
        scale="log",
        panel_scale="log",
    ),
    LayerMeasure(
        # Size of the stream after each layer: pre-norm lets it grow, post-norm sets it back.
        name="stream_size",
        key="rms",
        caption="Size of the stream after each layer.",
        panel_title="Root mean square of the stream",
        axis_label="size of the stream (root mean square)",
        columns={"rms": "stream"},
        legend="stream: root mean square after the layer",
        panel_scale="log",
    ),
    LayerMeasure(
        # Cosine of a layer's input and output: near one where a layer changes little.
        name="layer_cosine",
        key="cosine",
        caption="Cosine of each layer's input and output.",
        panel_title="Cosine of a layer's input and output",
        axis_label="cosine of input and output",
        columns={"cosine": "cosine"},
        legend="cosine: of the layer's input and output",
    ),
    LayerMeasure(
        # Size of what the branches of a layer add to the stream.
        name="update_size",
        key="update_rms",
        caption="Size of what the branches of each layer add to the stream.",
        panel_title="Root mean square of what branches add",
        axis_label="size of a branch's output (root mean square)",
        columns={"update_rms": "update"},
        legend="update: root mean square of what a branch adds to the stream",
        panel_scale="log",
    ),
    LayerMeasure(
        # Share of the stream that each layer's branches add.
        name="branch_share",
        key="share",
        caption="Share of the stream that each layer's branches add.",
        panel_title="Share of the stream that the layer adds",
        axis_label="share of the stream that a branch adds",
        columns={"share": "share added"},
        legend="share added: by a branch, mean of the layer's",
    ),
    LayerMeasure(
        # Entropy of attention over depth: lower is sharper.
        name="attention_entropy",
        key="entropy",
        companions=("entropy_share",),
        caption="Entropy of attention.",
        panel_title="Attention entropy, nats",
        axis_label="entropy of attention, nats",
        columns={"entropy": "entropy"},
        legend="entropy: of a row of attention, in nats",
    ),
    LayerMeasure(
        # Share of attention rows with nearly all weight at one position.
        name="one_hot",
        key="one_hot",
        caption="Share of attention rows with more than 0.9 at one position.",
        panel_title="Share of one-hot attention rows",
        axis_label="share of one-hot rows of attention",
        columns={"one_hot": "one-hot"},
        legend="one-hot: rows with more than 0.9 at one position",
    ),
    LayerMeasure(
        # Share of attention at the first position, which many models use as a place for attention that is not needed.
        name="first_position",
        key="first_share",
        caption="Share of attention at the first position.",
        panel_title="Share of attention at the first position",
        axis_label="attention at the first position",
        columns={"first_share": "first"},
        legend="first: share of a row at the first position",
    ),
    LayerMeasure(
        # Mean direction of queries: 0 if they are isotropic, 1 if all have one direction.
        name="isotropy",
        key="query_direction",
        caption="Norm of the mean direction of the queries.",
        panel_title="Mean direction of queries",
        axis_label="norm of the queries' mean direction",
        columns={"query_direction": "q dir"},
        legend="q dir: norm of the mean direction of queries",
    ),
    LayerMeasure(
        # Mean direction of keys: 0 if they are isotropic, 1 if all have one direction.
        name="key_isotropy",
        key="key_direction",
        caption="Norm of the mean direction of the keys.",
        panel_title="Mean direction of keys",
        axis_label="norm of the keys' mean direction",
        columns={"key_direction": "k dir"},
        legend="k dir: norm of the mean direction of keys",
    ),
    LayerMeasure(
        # Similarity of each layer's attention to that of the layer before; 1 is equal.
        name="attention_similarity",
        key="similarity",
        companions=("mean_similarity",),
        caption="Similarity of each layer's attention to the one before, head by head.",
        panel_title="Similarity of attention to the layer before, head by head",
        axis_label="similarity to the attention before",
        columns={"similarity": "similarity"},
        legend="similarity: to the attention before it, 1 is equal",
    ),
    LayerMeasure(
        # Share of each layer's own QKᵀ in its summed scores; 0 means that only earlier layers' scores count.
        name="own_scores",
        key="own_share",
        caption="Share of each layer's own QKᵀ in the variance of its summed scores.",
        panel_title="Own QKᵀ's share of the scores' variance",
        axis_label="share of own QKᵀ in the scores",
        columns={"own_share": "own scores"},
        legend="own scores: the layer's own share of its summed scores",
    ),
    LayerMeasure(
        # Loss when the final norm and the head read the stream after each layer of the trained model.
        name="early_exit",
        key="exit_loss",
        caption="Loss when the final norm and the head read the stream after each layer.",
        panel_title="Loss when reading out here, nats",
        axis_label="loss when read out here, nats per token",
        columns={"exit_loss": "exit loss"},
        legend="exit loss: nats per token when the head reads the stream after this layer",
        moments=("end",),
    ),
)
