"""Depth matrices as text: the matrix where it is small, and the weights that training changed most."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.text_table import aligned
from addnorm.reporting.sections.depth.matrices import has_plain_weights, is_rescaled, largest_changes, learns
from addnorm.statistics.over_seeds import DepthOverSeeds, depth_over_seeds

_MOST_SOURCES = 13
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
    by_variant: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_variant.setdefault(run.get("variant", run["run"]), []).append(run)
    parts = [
        _room(variant, room, width, alone=len(by_variant) == 1)
        for variant, of in by_variant.items()
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
        else f"weights after training{', means over positions' if room.varies else ''}"
    )
    parts = [textwrap.fill(head, width)]
    if alone and len(room.sources) <= _MOST_SOURCES:
        parts.append(_matrix(room, name, width))
    if name == "weights" and largest_changes(room):
        parts.append(_changes(room))
    if name == "weights" and is_rescaled(room):
        parts.append(textwrap.fill(_ONLY_SCALES, width))
    return "\n\n".join(parts)


def _matrix(room: DepthOverSeeds, name: str, width: int) -> str:
    matrix = room.matrices[name].end
    lines = [["reads", *map(_short, room.sources)]]
    lines += [
        [_short(read), *("" if value == 0 else f"{value:.2f}" for value in row)]
        for read, row in zip(room.reads, matrix, strict=True)
    ]
    return aligned(lines, width=width)


def _changes(room: DepthOverSeeds) -> str:
    spread = ["sd over seeds"] if room.seeds > 1 else []
    lines = [["changed most", "of", "at the start", "at the end", *spread, "free of scale"]]
    for change in largest_changes(room):
        sd = [] if change.sd is None else [f"{change.sd:.3f}"]
        lines.append(
            [change.read, change.source, f"{change.start:.3f}", f"{change.end:.3f}", *sd, f"{change.relative:.3f}"]
        )
    return aligned(lines, left=(0, 1))


def _short(name: str) -> str:
    return ".".join(_SHORT.get(part, part) for part in name.split("."))
