"""Depth matrices of a model, which layer listens to which, as `addnorm inspect` measured them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.checkpoints import inspect_command
from addnorm.reporting.reading.foreign import is_foreign
from addnorm.reporting.section import Section
from addnorm.reporting.sections.depth.figure import figure
from addnorm.reporting.sections.depth.heat_map import HeatMap, heat_map
from addnorm.reporting.sections.depth.matrices import (
    WeightChange,
    cells,
    depth_of,
    depth_rows,
    has_plain_weights,
    is_rescaled,
    largest_changes,
    learns,
)
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, MODEL_PAGE, View
from addnorm.statistics.over_seeds import DepthOverSeeds
from addnorm.words import Phrases

_MOST_IN_TABLE = 13


@dataclass(frozen=True, kw_only=True)
class RoomMaps:
    """The maps of one room of a model."""

    room: str
    kind: str
    seeds: int
    varies: bool
    is_plain: bool
    """True if all weights are 1, now and at the start."""
    is_rescaled: bool
    """True if the weights differ from 1 by factors alone that other matrices could take over."""
    maps: tuple[HeatMap, ...]
    changes: tuple[WeightChange, ...]
    """The weights that training changed most."""
    sources: tuple[str, ...]
    lines: tuple[tuple[str, tuple[float | None, ...]], ...]
    """The first map as a table, None for zeros; empty if it is large."""


def shown(room: DepthOverSeeds) -> RoomMaps:
    """Choose the maps of a room."""
    is_plain = has_plain_weights(room) and not learns(room)
    weights, shares = room.matrices["weights"], room.matrices["shares"]
    maps = []
    for key, matrix in (("shares", shares),) if is_plain else (("weights", weights), ("shares", shares)):
        starts = [] if matrix.start is None else [matrix.start]
        largest = float(max(np.abs(each).max() for each in (*starts, matrix.end)))
        maps.append(heat_map(key, matrix.end, room.reads, room.sources, largest))
        difference = matrix.difference
        if difference is not None and np.abs(difference).max() > 0:
            maps.append(
                heat_map(f"{key}_change", difference, room.reads, room.sources, float(np.abs(difference).max()))
            )
        if key == "weights" and not is_rescaled(room):
            relative = room.matrices["relative"].end
            beyond = np.where(relative == 0, 0.0, relative - 1)
            maps.append(heat_map("relative_map", beyond, room.reads, room.sources, float(np.abs(beyond).max())))
    table = (shares if is_plain else weights).end
    return RoomMaps(
        room=room.room,
        kind=room.kind,
        seeds=room.seeds,
        varies=room.varies,
        is_plain=is_plain,
        is_rescaled=is_rescaled(room) and not is_plain,
        maps=tuple(maps),
        changes=tuple(largest_changes(room)),
        sources=room.sources,
        lines=tuple(
            (read, tuple(float(value) if value else None for value in row))
            for read, row in zip(room.reads, table, strict=True)
            if len(room.sources) <= _MOST_IN_TABLE
        ),
    )


def _rows(snapshot: Snapshot, t: Phrases) -> Rows:
    return depth_rows(snapshot)


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("read", t("depth.read"), side="l"),
        Column("source", t("depth.source"), side="l"),
        Column("start", t("insight.at_start"), "{:.4g}".format),
        Column("end", t("insight.at_end"), "{:.4g}".format),
    )
    lines = [
        {"variant": row["variant"], **vars(change)} for row in rows for change in largest_changes(row["room"], most=5)
    ]
    return ResultTable(columns, lines)


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    return {"depth.csv": ResultTable.of(cells(rows)).csv()}


class DepthSection(Section):
    """Depth matrices of one model as heat maps; of all models as a figure."""

    order = 155
    pages = (MODEL_PAGE, CHECKPOINT_PAGE)
    in_report = "model"
    needs_study = False
    run_files = (inspections.NAME,)
    figures = (
        Figure(
            name="depth",
            caption="Which layer listens to which: weights of earlier outputs in every read, and their change in training.",
            rows=_rows,
            numbers=("reads",),
            draw=figure,
            table=_figure_table,
            files=_files,
            is_on_demand=True,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {
            "rooms": [shown(room) for room in depth_of(snapshot, view.variant or "")],
            "is_run": view.variant in snapshot.variants,
            "is_foreign": is_foreign(snapshot, view.variant),
            "command": inspect_command(snapshot, view.variant or ""),
        }

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return variant is not None and bool(depth_of(snapshot, variant))
