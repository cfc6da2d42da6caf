"""A depth matrix as cells of an inline SVG: one unit per cell, coloured by sign and size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

_MOST_TITLES = 1300
"""Cells with a text each; more would make a page slow, and the table has every number."""
_FAINTEST = 0.02
_LAST = {"close": "out", "embedding": "emb", "table": "table"}
"""Names on the axes of rows and columns that belong to no layer."""


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """A cell that is not zero."""

    row: int
    column: int
    opacity: float
    is_negative: bool
    title: str
    """Empty in large maps."""


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A map of one matrix. Places are per cent."""

    key: str
    """Of its title and explanation among the phrases."""
    rows: int
    columns: int
    cells: tuple[MatrixCell, ...]
    row_marks: tuple[tuple[float, str], ...]
    column_marks: tuple[tuple[float, str], ...]
    largest: float
    """Size that has the full colour."""


def heat_map(
    key: str, matrix: Float64[np.ndarray, "read source"], reads: Sequence[str], sources: Sequence[str], largest: float
) -> HeatMap:
    """Make the map of a matrix.

    Args:
        key: of its phrases.
        matrix: what is shown.
        reads: names of the rows.
        sources: names of the columns.
        largest: size that has the full colour; maps that are compared share it.
    """
    # Zeros are not cells: a causal map is half empty, and a browser draws each cell as an element. For the same
    # reason large maps have no texts, and cells too faint to see are left out below.
    places = [(int(r), int(s)) for r, s in np.argwhere(np.abs(matrix) > 0)]
    titled = len(places) <= _MOST_TITLES
    full = largest or 1.0
    return HeatMap(
        key=key,
        rows=len(reads),
        columns=len(sources),
        cells=tuple(
            MatrixCell(
                row=r,
                column=s,
                # Size is opacity and sign is colour plus a dash, so that the map reads on dark and light pages,
                # printed and without colour vision. `largest` comes from outside, since maps that are compared share
                # it.
                opacity=min(1.0, abs(float(matrix[r, s])) / full),
                is_negative=bool(matrix[r, s] < 0),
                title=f"{reads[r]} ← {sources[s]}: {matrix[r, s]:.3g}" if titled else "",
            )
            for r, s in places
            if abs(matrix[r, s]) > _FAINTEST * full
        ),
        row_marks=_marks(reads),
        column_marks=_marks(sources),
        largest=full,
    )


def _marks(names: Sequence[str], most: int = 12) -> tuple[tuple[float, str], ...]:
    """The layers' numbers in the middle of their rows or columns, thinned out, and names that belong to no layer."""
    # Sites are named `3.attention`, `3.feedforward`: a layer has one mark in the middle of its rows, whatever number
    # of branches its block has. Every step-th layer is marked, and always the names outside the layers.
    of_layer: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        of_layer.setdefault(name.partition(".")[0], []).append(place)
    step = -(-len(of_layer) // most)
    marks = []
    for number, (name, places) in enumerate(of_layer.items()):
        if name in _LAST or number % step == 0:
            middle = (places[0] + places[-1] + 1) / 2
            marks.append((100 * middle / len(names), _LAST.get(name, name)))
    return tuple(marks)
