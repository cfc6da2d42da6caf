"""Gradient norm of each layer, before and after training: post-norm's small early gradients show on the left."""

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
    return draw(rows, "gradient", language, scale="log", when=("start", "end"))
