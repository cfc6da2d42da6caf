"""Style of matplotlib figures: fonts with Chinese glyphs if installed, and line styles that differ without colour."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    known = {entry.name for entry in font_manager.fontManager.ttflist}
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


def legend_below(figure: "Figure", axes: "Axes", columns: int = 4) -> None:
    """One legend for the whole figure, under it."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=min(columns, len(names)),
            frameon=False,
            fontsize=8,
            handlelength=3.2,
        )


def finished(figure: "Figure") -> "Figure":
    """The figure with fonts for every letter in it; call it last."""
    from matplotlib.text import Text

    texts: list[Text] = figure.findobj(Text)
    # A second font is looked up for every text, which takes longer than drawing it.
    chinese = chinese_font() if any(max(text.get_text(), default="") >= _FIRST_CHINESE for text in texts) else None
    families = [_LATIN] if chinese is None else [_LATIN, chinese]
    for axes in figure.axes:
        axes.tick_params(axis="both", which="both", labelfontfamily=families)
    for text in texts:
        text.set_fontfamily(families)
    return figure
