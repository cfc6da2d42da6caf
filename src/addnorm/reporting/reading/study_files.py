"""Files that commands leave in a study's folder for whatever shows it later: read if they are there, inside, and whole."""

from collections.abc import Mapping
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.reading.contained import contained
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import read_json


def content_of(snapshot: Snapshot, name: str) -> Mapping[str, Any]:
    """What the file holds; empty if there is none.

    Args:
        name: of the file, relative to the study's folder.
    """
    path = snapshot.path / name
    if not contained(snapshot.path, path):
        return {}
    try:
        content = read_json(path)
    except AddnormError:
        return {}  # half-copied: as if it had not been made
    return content if isinstance(content, dict) else {}


UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""What reading a field raises where a file is another version's or nobody's: it is then as if it had not been made."""
