"""Measurements of `addnorm inspect`: `insight.json` in a run's folder."""

from collections.abc import Iterable, Mapping
from typing import Any

from addnorm import __version__
from addnorm.errors import AddnormError
from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.store import RunFolder, read_json

NAME = "insight.json"
FORMAT = 2
"""Newest version of the layout, as `addnorm.insight` writes it."""


def insights(snapshot: Snapshot, runs: Iterable[RunView] | None = None) -> dict[str, Mapping[str, Any]]:
    """Measurements by run name; runs without them, or with those of another format, are left out.

    Args:
        snapshot: the study.
        runs: of the study; all compared ones if not given.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for run in snapshot.runs if runs is None else runs:
        content = content_of(snapshot, f"{run.run}/{NAME}")
        if content.get("format") in (1, 2):  # version 1 has no depth matrices
            found[run.run] = content
    return found


def is_inspected(run: RunFolder) -> bool:
    """True if a finished run's measurements are those of its final weights, by this version of addnorm.

    `addnorm.inspect` would leave them as they are. To ask it takes torch, and most of a report's time.
    """
    path, done = run.path / NAME, run.path / "DONE"
    try:
        if not done.is_file() or path.stat().st_mtime < done.stat().st_mtime:
            return False
        content = read_json(path)
    except (AddnormError, OSError):
        return False
    steps = run.spec.get("steps")
    return (
        isinstance(content, dict)
        and (content.get("format"), content.get("addnorm")) == (FORMAT, __version__)
        and content.get("weights") == {"file": "final.safetensors", "step": steps, "steps": steps}
    )
