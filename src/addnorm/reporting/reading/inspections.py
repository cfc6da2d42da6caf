"""Measurements of `addnorm inspect`: `insight.json` in a run's folder."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "insight.json"


def insights(snapshot: Snapshot) -> dict[str, Mapping[str, Any]]:
    """Measurements by run name; runs without them, or with those of another format, are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in snapshot.runs:
        content = content_of(snapshot, f"{run.run}/{NAME}")
        if content.get("format") in (1, 2):  # version 1 has no depth matrices
            found[run.run] = content
    return found
