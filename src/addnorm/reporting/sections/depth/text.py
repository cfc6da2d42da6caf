"""Depth matrices as text: the matrix where it is small, and the weights that training changed most."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.numbers import spread
from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.reporting.sections.depth.matrices import has_plain_weights, is_rescaled, largest_changes, learns
from addnorm.statistics.over_seeds import DepthOverSeeds, depth_over_seeds
from addnorm.words import translated

_MOST_SOURCES = 13
_LARGEST = 4
_SHORT = {"attention": "att", "feedforward": "ffn", "embedding": "emb"}
_WHOSE = {"residual": "branch", "scores": "layer's scores", "values": "layer's values"}
_ONLY_SCALES = (
    "These weights differ from 1 by factors of whole reads and sources alone, which the matrices around could take over: the "
    "model could be written without them."
)


def text(runs: Sequence[Mapping[str, Any]], width: int = 100) -> str:
    """The depth matrices of every variant among some runs.

    Args:
        runs: contents of their `insight.json`.
        width: of a line.
    """
    by_variant = grouped(runs, lambda run: str(run.get("variant", run["run"])))
    parts = [
        _room(variant, room, width, alone=len(by_variant) == 1)
        for variant, of in by_variant
        for room in depth_over_seeds(of)
    ]
    return "\n\n".join(part for part in parts if part)


def _room(variant: str, room: DepthOverSeeds, width: int, *, alone: bool) -> str:
    name = "shares" if has_plain_weights(room) and not learns(room) else "weights"
    if name == "shares" and not alone:
        return ""  # one line per variant that says nothing of its mechanism would hide the others
    seeds = "" if room.seeds == 1 else f", mean of {room.seeds} seeds"
    head = f"{variant}: which {_WHOSE[room.room]} reads which ({room.room} {room.kind}{seeds}): "
    head += (
        "shares of each read after training; all weights are 1"
        if name == "shares"
        else ("weights after training, means over positions" if room.varies else "weights after training")
    )
    parts = [filled(translated(head), width)]
    if alone and len(room.sources) <= _MOST_SOURCES:
        parts.append(_matrix(room, name, width))
    elif alone:
        parts.append(_largest(room, width))
    if name == "weights" and largest_changes(room):
        parts.append(_changes(room))
    if name == "weights" and is_rescaled(room):
        parts.append(filled(translated(_ONLY_SCALES), width))
    return "\n\n".join(parts)


def _matrix(room: DepthOverSeeds, name: str, width: int) -> str:
    columns = (
        Column(source, _short(source), lambda value: "" if value == 0 else f"{value:.2f}", value=at(1, place))
        for place, source in enumerate(room.sources)
    )
    rows = list(zip(room.reads, room.matrices[name].end, strict=True))
    return ResultTable([Column("reads", side="l", value=lambda row: _short(row[0])), *columns], rows).text(width)


def _largest(room: DepthOverSeeds, width: int) -> str:
    """The sources with the largest shares of some reads, of a matrix too wide for a page."""
    shares = room.matrices["shares"].end

    def largest(read: int) -> str:
        places = np.argsort(-np.abs(shares[read]))[:_LARGEST]
        return "  ".join(f"{_short(room.sources[place])} {shares[read, place]:.2f}" for place in places)

    columns = (
        Column("reads", side="l", value=lambda read: _short(room.reads[read])),
        Column("largest shares", side="l", value=largest),
    )
    return ResultTable(columns, spread(len(room.reads), _MOST_SOURCES)).text(width)


def _changes(room: DepthOverSeeds) -> str:
    columns = [
        Column("read", "changed most", side="l"),
        Column("source", "of", side="l"),
        Column("start", "at the start", dashed(".3f")),
        Column("end", "at the end", dashed(".3f")),
        Column("sd", "sd over seeds", dashed(".3f")),
        Column("relative", "free of scale", dashed(".3f")),
    ]
    if room.seeds == 1:
        del columns[4]
    return ResultTable(columns, largest_changes(room)).text()


def _short(name: str) -> str:
    return ".".join(_SHORT.get(part, part) for part in name.split("."))
