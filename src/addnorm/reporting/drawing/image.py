"""matplotlib figures as image files."""

import io
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 160
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
}


def saved(figure: "Figure", kind: str) -> bytes:
    """The figure as a file of that kind: svg, png or pdf. The same numbers give the same bytes."""
    # Some fonts with Chinese glyphs have no normal weight; the nearest is what is wanted, so nobody need be told.
    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    fonts.setLevel(logging.ERROR)
    try:
        return _bytes(figure, kind)
    finally:
        fonts.setLevel(level)


def _bytes(figure: "Figure", kind: str) -> bytes:
    import matplotlib

    out = io.BytesIO()
    # Without a date and with a fixed salt the same numbers give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "addnorm", "svg.fonttype": "path"}):
        figure.savefig(out, format=kind, dpi=_DPI, metadata=_UNDATED[kind])
    return out.getvalue()
