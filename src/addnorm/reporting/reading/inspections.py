"""Measurements of `addnorm inspect`: `insight.json` in a run's folder."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "insight.json"
FORMATS = (1, 2, 3)
"""Versions that can be shown: version 1 has no depth matrices, version 2 no size of what layers add."""


def insights(snapshot: Snapshot) -> dict[str, Mapping[str, Any]]:
    """Measurements by the name of a run or a checkpoint; those without, or of another format, are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    for place in (place for model in snapshot.models for place in snapshot.measured_in(model)):
        content = content_of(snapshot, f"{place.folder}/{NAME}")
        if content.get("format") in FORMATS:
            found[place.name] = content
    return found
