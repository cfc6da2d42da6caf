"""Entropy of attention over depth: lower is sharper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from addnorm.reporting.plots.per_layer import Row, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(rows: Sequence[Row], language: str = "en") -> "Figure":
    """The figure, from one row per variant and layer.

    Raises:
        ValueError: there are no rows.
    """
    return draw(rows, "entropy", language, scale="linear", when=("start", "end"))
