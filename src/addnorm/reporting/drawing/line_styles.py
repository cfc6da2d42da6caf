"""Line patterns and point shapes of models, which differ without colour."""

from collections.abc import Sequence

_COLOURS = 10
_PATTERNS = 4
"""Of `page.css`: whole, dashed, dotted, dash and dot."""
_SHAPES = 5
"""Of points, in `_parts.html`."""


def dash(style: int) -> int:
    """The pattern of the line in that place: neighbours differ by it; with the ten colours the first forty lines do."""
    return (style + style // 20) % _PATTERNS


def distinct(styles: Sequence[int], *, by_colour: bool = False) -> dict[int, tuple[int, int]]:
    """Colour and pattern of each line, as far as there are so many: its own unless an earlier line has them.

    Args:
        styles: places of the lines' models, each once.
        by_colour: differ by colour alone, because patterns tell other things apart.

    Example:
        >>> distinct([0, 4, 44, 54])
        {0: (0, 0), 4: (4, 0), 44: (4, 2), 54: (4, 1)}
    """
    chosen: dict[int, tuple[int, int]] = {}
    for style in styles:
        colours = [(style + shift) % _COLOURS for shift in range(_COLOURS)]
        patterns = [(dash(style) + shift) % _PATTERNS for shift in range(1 if by_colour else _PATTERNS)]
        looks = [(colour, pattern) for colour in colours for pattern in patterns]
        taken = {look[0] if by_colour else look for look in chosen.values()}
        chosen[style] = next((look for look in looks if (look[0] if by_colour else look) not in taken), looks[0])
    return chosen


def shape(style: int) -> int:
    """The shape of the points in that place: with the pattern, the first twenty lines differ without colour."""
    return style % _SHAPES
