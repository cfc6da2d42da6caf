"""How lines of different models look: patterns and shapes, so that nothing rests on colour."""

_PATTERNS = 4
"""Of `page.css`: whole, dashed, dotted, dash and dot."""
_SHAPES = 5
"""Of points, in `_parts.html`."""


def dash(style: int) -> int:
    """The pattern of the line in that place: neighbours differ by it; with the ten colours the first forty lines do."""
    return (style + style // 20) % _PATTERNS


def shape(style: int) -> int:
    """The shape of the points in that place: with the pattern, the first twenty lines differ without colour."""
    return style % _SHAPES
