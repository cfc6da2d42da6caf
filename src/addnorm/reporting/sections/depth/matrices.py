"""The depth matrices of a variant as pages, reports and terminals show them: which are worth a map, what their cells say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from addnorm.reporting.reading.inspections import insights
from addnorm.reporting.reading.study_files import UNREADABLE
from addnorm.reporting.snapshot import Snapshot
from addnorm.statistics.over_seeds import DepthOverSeeds, depth_over_seeds

_MOVED = 1e-5
"""Smallest difference that counts as one: recorded numbers have six digits."""
_RESCALED = 1e-4
"""Largest distance from 1 that rounding of recorded numbers leaves in a ratio of four."""


@dataclass(frozen=True, kw_only=True)
class WeightChange:
    """A weight that training has changed."""

    read: str
    source: str
    start: float
    end: float
    sd: float | None
    """Over seeds, of the difference."""
    relative: float
    """At the end, without factors that the matrices around could take over."""


def depth_of(snapshot: Snapshot, variant: str) -> list[DepthOverSeeds]:
    """The depth matrices of a checkpoint, or of a variant over its inspected seeds; none if there are none, or if files are not
    understood."""
    key = f"depth of {variant}"
    if key not in snapshot.derived:  # a report shows them in a figure and in tables
        try:
            snapshot.derived[key] = depth_over_seeds(list(insights(snapshot, [variant]).values()))
        except UNREADABLE:
            snapshot.derived[key] = []
    return list(snapshot.derived[key])


def learns(room: DepthOverSeeds) -> bool:
    """True if its weights are not the same numbers at the start, at the end and at every position."""
    weights = room.matrices["weights"]
    moved = weights.difference is not None and bool(np.abs(weights.difference).max() > _MOVED)
    return moved or room.varies


def has_plain_weights(room: DepthOverSeeds) -> bool:
    """True if every source has the weight 1, so that a map would show nothing."""
    end = room.matrices["weights"].end
    return bool(np.abs(end[end != 0] - 1).max(initial=0.0) <= _MOVED)


def is_rescaled(room: DepthOverSeeds) -> bool:
    """True if nothing but sizes of rows and columns, which other matrices can take over, sets its weights apart from 1."""
    end = room.matrices["relative"].end
    return bool(np.abs(end[end != 0] - 1).max(initial=0.0) <= _RESCALED)


def largest_changes(room: DepthOverSeeds, most: int = 8) -> list[WeightChange]:
    """The weights that training has changed most, largest first."""
    matrix = room.matrices["weights"]
    if matrix.start is None or matrix.difference is None:
        return []
    order = np.argsort(-np.abs(matrix.difference), axis=None)[:most]
    cells = [divmod(int(place), len(room.sources)) for place in order]
    return [
        WeightChange(
            read=room.reads[read],
            source=room.sources[source],
            start=float(matrix.start[read, source]),
            end=float(matrix.end[read, source]),
            sd=None if matrix.sd is None else float(matrix.sd[read, source]),
            relative=float(room.matrices["relative"].end[read, source]),
        )
        for read, source in cells
        if abs(matrix.difference[read, source]) > _MOVED
    ]


def depth_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """One row per variant and room, for figures and tables."""
    return [
        {"variant": variant, "room": room, "reads": room.reads}
        for variant in snapshot.models
        for room in depth_of(snapshot, variant)
    ]


def cells(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per cell of every matrix: a table that other programs read."""
    return [
        {
            "variant": row["variant"],
            "room": room.room,
            "kind": room.kind,
            "matrix": name,
            "read": read,
            "source": source,
            "start": None if matrix.start is None else float(matrix.start[r, s]),
            "end": float(matrix.end[r, s]),
            "sd": None if matrix.sd is None else float(matrix.sd[r, s]),
            "seeds": room.seeds,
        }
        for row in rows
        for room in [row["room"]]
        for name, matrix in room.matrices.items()
        for r, read in enumerate(room.reads)
        for s, source in enumerate(room.sources)
        if matrix.end[r, s] or (matrix.start is not None and matrix.start[r, s])
    ]
