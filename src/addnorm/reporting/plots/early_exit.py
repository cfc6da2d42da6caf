"""Loss when the final norm and the head read the stream after each layer of the trained model."""

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
    return draw(rows, "exit_loss", language, scale="linear", when=("end",))
