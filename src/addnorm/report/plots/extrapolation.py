"""Loss and accuracy against the length, and loss by position in the longest windows: a line per model, with intervals.

Lines differ in dashes, markers and shade of grey-safe colours, so that a copy without colour can be read.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's palette, whose shades differ in grey as well."""


def figure(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """The figure of an evaluation at lengths.

    Args:
        rows: `rows` of `addnorm extrapolate --json`: one per model and length.

    Raises:
        ValueError: there are no rows.
    """
    from matplotlib.figure import Figure

    if not rows:
        raise ValueError("a figure needs at least one row of an evaluation at lengths, got none.")
    labels = list(dict.fromkeys(row["label"] for row in rows))
    lengths = sorted({row["length"] for row in rows})
    drawn = Figure(figsize=(13.5, 4.6), layout="constrained")
    accuracy, loss, place = drawn.subplots(1, 3)
    for index, label in enumerate(labels):
        style = _style(index)
        aside = 2 ** (0.12 * (index / max(1, len(labels) - 1) - 0.5))  # so that equal points do not hide each other
        mine = sorted((row for row in rows if row["label"] == label), key=lambda row: row["length"])
        _line(
            accuracy, [(aside * r["length"], r["accuracy"], r["accuracy_interval"]) for r in mine], style, label, 100.0
        )
        _line(loss, [(aside * r["length"], r["loss"], r["loss_interval"]) for r in mine], style, label, 1.0)
        buckets = mine[-1]["buckets"] if mine[-1]["length"] == lengths[-1] else []
        middles = [(aside * (b["from"] + b["to"]) / 2, b["loss"], b["loss_interval"]) for b in buckets]
        _line(place, middles, style, label, 1.0)
    trained = min(row["length"] // row["multiple"] for row in rows)
    _finish(accuracy, "accuracy, %", "test length, tokens", lengths, trained)
    _finish(loss, "loss, nats per token", "test length, tokens", lengths, trained)
    _finish(place, f"loss in windows of {lengths[-1]}", "position in the window", lengths, trained)
    drawn.legend(
        *loss.get_legend_handles_labels(), loc="outside lower center", ncols=min(4, len(labels)), frameon=False
    )
    return drawn


def _style(index: int) -> dict[str, Any]:
    return {
        "linestyle": _DASHES[index % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "color": _COLOURS[index % len(_COLOURS)],
    }


def _line(
    axes: "Axes",
    points: Sequence[tuple[float | int, float | None, Sequence[float] | None]],
    style: Mapping[str, Any],
    label: str,
    factor: float,
) -> None:
    known = [(x, factor * y, ends) for x, y, ends in points if y is not None]
    if not known:
        return
    below = [0.0 if ends is None else y - factor * ends[0] for _, y, ends in known]
    above = [0.0 if ends is None else factor * ends[1] - y for _, y, ends in known]
    axes.errorbar(
        [x for x, _, _ in known],
        [y for _, y, _ in known],
        yerr=[below, above],
        label=label,
        capsize=2,
        markersize=4,
        linewidth=1.2,
        **style,
    )


def _finish(axes: "Axes", title: str, below: str, lengths: Sequence[int], trained: int) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(below)
    axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
