"""Depth matrices of a model, which layer listens to which, as `addnorm inspect` measured them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from addnorm.reporting.drawing.figure_style import figure_of, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.reading import inspections
from addnorm.reporting.reading.checkpoints import inspect_command
from addnorm.reporting.reading.foreign import is_foreign
from addnorm.reporting.section import Section
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

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
    # Which maps say something: of plain weights (all 1, now and at the start) only the shares, since a map of ones
    # has one colour. Otherwise the weights and the shares, each with its change if there is any. Weights free of
    # scale are shown where factors that neighbouring matrices could take over do not explain everything; where they
    # do, a sentence says so, because the picture would suggest a structure that the model could be written without.
    is_plain = has_plain_weights(room) and not learns(room)
    weights, shares = room.matrices["weights"], room.matrices["shares"]
    maps = []
    for key, matrix in (("shares", shares),) if is_plain else (("weights", weights), ("shares", shares)):
        starts = [] if matrix.start is None else [matrix.start]
        # The scale covers the start too, although only the end is drawn: weights that shrank in training look faint
        # instead of filling the colours.
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


_MOST_IN_FIGURE = 12
"""Models and rooms in one figure."""
_COLOURS = "PuOr_r"
"""Diverging, and distinguishable for colour-blind readers."""


@figure_of("model with depth matrices")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """Draw the depth matrices, a row of two maps per model and room. Rooms whose weights are all 1 show shares.

    Args:
        rows: see `depth_rows`.
        language: of the labels.
    """
    telling = [row for row in rows if learns(row["room"]) or not has_plain_weights(row["room"])]
    chosen = (telling or rows)[:_MOST_IN_FIGURE]
    drawn = new_figure(8.2, 0.5 + 2.9 * len(chosen))
    for panels, row in zip(drawn.subplots(len(chosen), 2, squeeze=False), chosen, strict=True):
        room = row["room"]
        name = "weights" if learns(room) or not has_plain_weights(room) else "shares"
        matrix = room.matrices[name]
        maps = ((matrix.end, name), (matrix.difference, f"{name}_change"))
        for axes, (values, key) in zip(panels, maps, strict=True):
            if values is None:
                axes.set_visible(False)
                continue
            most = float(np.abs(values).max()) or 1.0
            masked = np.ma.masked_equal(values, 0.0)
            image = axes.imshow(masked, cmap=_COLOURS, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
            bar = drawn.colorbar(image, ax=axes, shrink=0.9)
            bar.ax.tick_params(labelsize=7)
            tidy(
                axes, title=f"{row['variant']}  {room.kind}: {t(f'depth.{key}')}", across=t("depth.source"), grid="both"
            )
            axes.grid(visible=False)
            axes.set_ylabel(t("depth.read"), fontsize=9)
            for set_ticks, names in ((axes.set_xticks, room.sources), (axes.set_yticks, room.reads)):
                places = list(range(0, len(names), max(1, len(names) // 8)))
                set_ticks(places, [_short_name(names[place]) for place in places])
            axes.tick_params(axis="x", labelrotation=45)
    return drawn


def _short_name(name: str) -> str:
    return name.replace("feedforward", "ffn").replace("attention", "att")


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
    absence = "weights"
    pages = (MODEL_PAGE, CHECKPOINT_PAGE)
    in_report = "model"
    sources = frozenset({"study", "checkpoints"})
    run_files = (inspections.NAME,)
    figures = (
        Figure(
            name="depth",
            caption="Which layer listens to which: weights of earlier outputs in every read, and their change in training.",
            rows=lambda snapshot, t: depth_rows(snapshot),
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
