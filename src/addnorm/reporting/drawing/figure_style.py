"""Style of matplotlib figures: fonts with Chinese glyphs if installed, and line styles that differ without colour."""

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from addnorm.words import Phrases, phrases

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Noto Sans CJK JP",
    "Droid Sans Fallback",
    "Arial Unicode MS",
)
"""Looked for in this order."""
_LATIN = "DejaVu Sans"
"""Comes with matplotlib."""
_NAME_LETTERS = 44
_FIRST_CHINESE = "\u2e80"
"""Unicode's first letter of East Asia; the font above has none of them."""

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 2, 1, 2)), (0, (1.2, 1.6)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""


@cache
def chinese_font() -> str | None:
    """Name of an installed font with Chinese glyphs; None if there is none."""
    from matplotlib import font_manager

    fonts = font_manager.fontManager
    if not any(entry.name in CHINESE_FONTS for entry in fonts.ttflist):
        # Its list of fonts is kept in a file from one run to the next, without those that were installed since.
        for path in set(font_manager.findSystemFonts()) - {entry.fname for entry in fonts.ttflist}:
            with suppress(OSError, RuntimeError, ValueError):  # not a font that it can read: it draws none of them
                fonts.addfont(path)
    known = {entry.name for entry in fonts.ttflist}
    return next((name for name in CHINESE_FONTS if name in known), None)


def drawable(language: str) -> str:
    """The language itself if a font for it is installed, else English."""
    return "en" if language == "zh" and chinese_font() is None else language


def style(place: int) -> dict[str, Any]:
    """Line, marker and colour of the variant in that place; 140 places differ."""
    return {
        "linestyle": _DASHES[place % len(_DASHES)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "color": _COLOURS[place % len(_COLOURS)],
    }


@runtime_checkable
class DrawsRows(Protocol):
    """A function that draws rows in a language."""

    def __call__(self, rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
        """The figure of at least one row.

        Raises:
            ValueError: there are no rows.
            UnknownName: no such language.
        """
        ...


# A figure is a function of rows and phrases that arranges panels; everything that all figures share is done around
# it, in this order: no rows are refused before a figure object exists, and fonts are chosen after the last text is
# placed. A figure that set its own fonts would lose Chinese variants' names in a report whose labels are English.
def figure_of(needed: str) -> Callable[[Callable[[Sequence[Mapping[str, Any]], Phrases], "Figure"]], DrawsRows]:
    """Make a function that draws rows in a language of one that arranges them with the phrases of that language.

    Args:
        needed: what the figure needs at least one of, for the message where there are no rows.
    """

    def decorate(arrange: Callable[[Sequence[Mapping[str, Any]], Phrases], "Figure"]) -> DrawsRows:
        def draw(rows: Sequence[Mapping[str, Any]], language: str = "en") -> "Figure":
            if not rows:
                raise ValueError(f"a figure needs at least one {needed}, got none.")
            return finished(arrange(rows, phrases(language)))

        # Not by `wraps`, which would hand on the signature with phrases too; the docstring is written for `draw`.
        draw.__doc__ = arrange.__doc__
        return draw

    return decorate


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: "Axes", *, title: str = "", across: str = "", up: str = "", grid: str = "y") -> None:
    """Titles, a light grid along `grid` and no box."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis=grid, color="0.9", linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: "Figure", axes: "Axes") -> None:
    """One legend for the whole figure, under it, in as many of four columns as its width holds."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        key_below(figure, handles, names, most=4, handlelength=3.2)


_SIGN_INCHES = 0.65
"""A line with its marker and the gaps around it, in a legend of 8 points."""


def _legend_inches(names: Sequence[str], columns: int) -> float:
    """About the width of a legend. Each column is as wide as its longest name; a letter takes 0.6 of its height on average, a
    Chinese one all of it."""
    widths = [sum(1.0 if letter >= _FIRST_CHINESE else 0.6 for letter in name) * 8 / 72 for name in names]
    # Columns are filled one after the other, the first ones with one name more where they cannot be equal.
    size, more = divmod(len(names), columns)
    starts = [column * size + min(column, more) for column in range(columns + 1)]
    return sum(_SIGN_INCHES + max(widths[first:last]) for first, last in itertools.pairwise(starts))


def key_below(
    figure: "Figure", handles: Sequence["Artist"], names: Sequence[str], *, most: int = 8, handlelength: float = 2.0
) -> None:
    """Signs and their meanings under the figure, in as many columns as its width holds, up to `most`."""
    # matplotlib centres a legend that is too wide and cuts it on both sides.
    counts = range(min(most, len(names)), 1, -1)
    fitting = next((count for count in counts if _legend_inches(names, count) <= figure.get_figwidth()), 1)
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=fitting,
        frameon=False,
        fontsize=8,
        handlelength=handlelength,
    )


def grid_of_panels(figure: "Figure", count: int, columns: int, *, share: bool = False) -> list["Axes"]:
    """So many panels, row by row, with shared axes or their own; the rest of the last row stays empty."""
    panels = list(figure.subplots(-(-count // columns), columns, sharex=share, sharey=share, squeeze=False).flat)
    for axes in panels[count:]:
        axes.set_visible(False)
    return panels[:count]


def with_whiskers(axes: "Axes", place: int, name: str, points: Sequence[tuple[float, float, float, float]]) -> None:
    """Draw the line of the model in that place, with whiskers.

    Args:
        axes: of the panel.
        place: of the model, for its style.
        name: in the legend.
        points: x, y, and the lengths of the whiskers down and up.
    """
    xs, ys, down, up = ([point[part] for point in points] for part in range(4))
    axes.errorbar(xs, ys, yerr=[down, up], label=name, linewidth=1.1, elinewidth=0.7, markersize=4.5, **style(place))


def _without_offset() -> "ScalarFormatter":
    """Labels that have every digit which distinguishes them: 2.63081, not 1 beside `1e-5+2.6308`; 2e-6, not 0.000002."""
    from matplotlib.ticker import ScalarFormatter

    class Whole(ScalarFormatter):
        def __init__(self) -> None:
            super().__init__(useOffset=False)
            self.set_scientific(False)

        def format_ticks(self, values: list[float]) -> list[str]:
            largest = max((abs(float(value)) for value in values), default=0.0)
            if len(values) < 2 or largest == 0 or 1e-4 <= largest < 1e6:
                return super().format_ticks(values)
            step = min(abs(second - first) for first, second in itertools.pairwise(values)) or largest
            digits = max(1, 2 + math.floor(math.log10(largest / step)))
            return [self.fix_minus(f"{value:.{digits}g}") for value in values]

    return Whole()


def name_rows(axes: Any, heights: Iterable[float], names: Iterable[str]) -> None:
    """Names beside an axis, in two lines at most: longer ones would leave no room for the axis itself."""
    folded = (textwrap.wrap(name, _NAME_LETTERS, max_lines=2, placeholder=" …") for name in names)
    axes.set_yticks(list(heights), ["\n".join(lines) for lines in folded])


def finished(figure: "Figure") -> "Figure":
    """The figure with whole numbers beside its axes and fonts for every letter in it; call it last."""
    from matplotlib.text import Text
    from matplotlib.ticker import ScalarFormatter

    # An offset such as `1e-5+2.6308` above an axis overlaps the title, and has to be added to every label by the reader.
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, ScalarFormatter) and axis.get_scale() == "linear":
                axis.set_major_formatter(_without_offset())
    # By the largest letter of each text and not by the language: names of variants and titles are the user's, and may
    # be Chinese in an English figure.
    texts: list[Text] = figure.findobj(Text)
    # A second font is looked up for every text, which takes longer than drawing it.
    chinese = chinese_font() if any(max(text.get_text(), default="") >= _FIRST_CHINESE for text in texts) else None
    families = [_LATIN] if chinese is None else [_LATIN, chinese]
    for axes in figure.axes:
        axes.tick_params(axis="both", which="both", labelfontfamily=families)
    for text in texts:
        text.set_fontfamily(families)
    return figure
