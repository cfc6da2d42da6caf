"""Loss and accuracy against the length, and loss by position in the longest windows: a line per model, with intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import finished, legend_below, new_figure, style, tidy
from addnorm.words import phrases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float | None, Sequence[float] | None]
"""Where, how much, and its interval."""


def figure(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
    """The figure of an evaluation at lengths.

    Args:
        rows: `rows` of `addnorm extrapolate --json`: one per model and length.
        language: of the texts.

    Raises:
        ValueError: there are no rows.
        UnknownName: no such language.
    """
    if not rows:
        raise ValueError("a figure needs at least one row of an evaluation at lengths, got none.")
    models = list(dict.fromkeys(row["label"] for row in rows))
    lengths = sorted({row["length"] for row in rows})
    trained = min(row["length"] // row["multiple"] for row in rows)
    drawn = new_figure(13.5, 4.6)
    accuracy, loss, inside = drawn.subplots(1, 3)
    for place, model in enumerate(models):
        aside = 2 ** (0.12 * (place / max(1, len(models) - 1) - 0.5))  # so that equal points do not hide each other
        mine = sorted((row for row in rows if row["label"] == model), key=lambda row: row["length"])
        at = [aside * row["length"] for row in mine]
        shares = [(x, row["accuracy"], row["accuracy_interval"]) for x, row in zip(at, mine, strict=True)]
        _line(accuracy, place, model, shares, 100.0)
        _line(
            loss, place, model, [(x, row["loss"], row["loss_interval"]) for x, row in zip(at, mine, strict=True)], 1.0
        )
        buckets = mine[-1]["buckets"] if mine[-1]["length"] == lengths[-1] else []
        middles = [(aside * (b["from"] + b["to"]) / 2, b["loss"], b["loss_interval"]) for b in buckets]
        _line(inside, place, model, middles, 1.0)
    across = phrases(language)("plot.test_length")
    _finish(accuracy, phrases(language)("plot.accuracy_at"), across, lengths, trained)
    _finish(loss, phrases(language)("plot.loss_at"), across, lengths, trained)
    title = phrases(language)("plot.loss_in_windows", length=str(lengths[-1]))
    _finish(inside, title, phrases(language)("plot.place_in_window"), lengths, trained)
    legend_below(drawn, loss)
    return finished(drawn)


def _line(axes: "Axes", place: int, name: str, points: Sequence[Point], factor: float) -> None:
    known = [(x, factor * y, ends) for x, y, ends in points if y is not None]
    if not known:
        return
    axes.errorbar(
        [x for x, _, _ in known],
        [y for _, y, _ in known],
        yerr=[
            [0.0 if ends is None else y - factor * ends[0] for _, y, ends in known],
            [0.0 if ends is None else factor * ends[1] - y for _, y, ends in known],
        ],
        label=name,
        linewidth=1.1,
        elinewidth=0.7,
        markersize=4.5,
        **style(place),
    )


def _finish(axes: "Axes", title: str, across: str, lengths: Sequence[int], trained: int) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.minorticks_off()
    axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)
    tidy(axes, title=title, across=across)
