"""Share of each layer's own QKᵀ in its summed scores: 0 is a layer that lives on earlier layers' scores."""

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
    return draw(rows, "own_share", language, scale="linear", when=("start", "end"))
