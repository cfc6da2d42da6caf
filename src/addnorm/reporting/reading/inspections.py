"""What `addnorm inspect` measured: `insight.json` in a run's folder."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "insight.json"


def insights(snapshot: Snapshot) -> dict[str, Mapping[str, Any]]:
    """What `addnorm inspect` left, by run; runs without it, or with another version's, are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in snapshot.runs:
        content = content_of(snapshot, f"{run.run}/{NAME}")
        if content.get("format") == 1:
            found[run.run] = content
    return found
