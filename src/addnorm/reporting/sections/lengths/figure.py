"""Loss and accuracy against the length, and loss by position in the longest windows: a line per model, with intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, legend_below, new_figure, tidy, with_whiskers
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.measured import RankingFormats
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@figure_of("row of an evaluation at lengths")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "Figure":
    """The figure of an evaluation at lengths.

    Args:
        rows: `rows` of `addnorm extrapolate --json`: one per model and length; with `unit`, if it is not nats per token.
        language: of the labels.
    """
    models = grouped(rows, lambda row: str(row["label"]))
    lengths = sorted({row["length"] for row in rows})
    trained = min(row["length"] // row["multiple"] for row in rows)
    drawn = new_figure(13.5, 4.6)
    accuracy, loss, inside = drawn.subplots(1, 3)
    for place, (model, of_model) in enumerate(models):
        aside = 2 ** (0.12 * (place / max(1, len(models) - 1) - 0.5))  # so that equal points do not hide each other
        of_model.sort(key=lambda row: row["length"])
        longest = of_model[-1]
        buckets = longest["buckets"] if longest["length"] == lengths[-1] else []
        middles = [{**bucket, "length": (bucket["from"] + bucket["to"]) / 2} for bucket in buckets]
        _line(accuracy, place, model, of_model, "accuracy", aside, 100.0)
        _line(loss, place, model, of_model, "loss", aside, 1.0)
        _line(inside, place, model, middles, "loss", aside, 1.0)
    _finish(accuracy, t("plot.accuracy_at"), t("plot.test_length"), lengths, trained)
    unit = RankingFormats.of({"metric": "loss", **rows[0]}, t).unit
    _finish(loss, t("plot.loss_at", unit=unit), t("plot.test_length"), lengths, trained)
    title = t("plot.loss_in_windows", length=str(lengths[-1]), unit=unit)
    _finish(inside, title, t("plot.place_in_window"), lengths, trained)
    legend_below(drawn, loss)
    return drawn


def _line(
    axes: "Axes", place: int, name: str, rows: Sequence[Mapping[str, Any]], key: str, aside: float, factor: float
) -> None:
    """Draw the known values of a measure against the length, with their intervals."""
    points = []
    for row in rows:
        if row[key] is not None:
            y, ends = factor * row[key], row[f"{key}_interval"]
            whiskers = (0.0, 0.0) if ends is None else (y - factor * ends[0], factor * ends[1] - y)
            points.append((aside * row["length"], y, *whiskers))
    if points:
        with_whiskers(axes, place, name, points)


def _finish(axes: "Axes", title: str, across: str, lengths: Sequence[int], trained: int) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.minorticks_off()
    axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)
    tidy(axes, title=title, across=across)
