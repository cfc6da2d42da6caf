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
    # Some fonts with Chinese glyphs have no normal weight. matplotlib picks the nearest, which is wanted, and warns.
    fonts = logging.getLogger("matplotlib.font_manager")
    level = fonts.level
    fonts.setLevel(logging.ERROR)
    try:
        return _bytes(figure, kind)
    finally:
        fonts.setLevel(level)


def _bytes(figure: "Figure", kind: str) -> bytes:
    import matplotlib
    from matplotlib.backend_bases import get_registered_canvas_class

    out = io.BytesIO()
    canvas: Any = get_registered_canvas_class(kind)(figure)
    layout = figure.get_layout_engine()
    # Letters become outlines (`svg.fonttype`), since a report must look the same where the font is missing.
    # `rc_context` changes settings of the whole process, so that a server holds a lock while it draws
    # (`addnorm.web.app`).
    # Without a date and with a fixed salt the same numbers give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "addnorm", "svg.fonttype": "path"}):
        # `Figure.savefig` draws everything once more only to place it. Placing it here gives the same bytes in less time.
        figure.dpi = canvas.fixed_dpi or _DPI
        if layout is not None:
            layout.execute(figure)
        figure.set_layout_engine("none")
        getattr(canvas, f"print_{kind}")(out, metadata=_UNDATED[kind])
    figure.set_layout_engine(layout)
    return out.getvalue()
