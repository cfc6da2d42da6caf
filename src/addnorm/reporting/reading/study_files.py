"""Reading the files that commands write into a study's folder: missing, damaged or linked files count as absent."""

from collections.abc import Mapping
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.reading.contained import contained
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import read_json


def content_of(snapshot: Snapshot, name: str) -> Mapping[str, Any]:
    """Read a JSON file of the study's folder; empty if it is missing, damaged or outside the folder.

    Args:
        name: of the file, relative to the study's folder.
    """
    # A study folder may come from somebody else, as an archive. `contained` resolves links first: `costs.json ->
    # ~/.ssh/config` would otherwise be served on a page.
    path = snapshot.path / name
    if not contained(snapshot.path, path):
        return {}
    try:
        content = read_json(path)
    except AddnormError:
        return {}  # for example copied in part; the command that writes it can be run again
    return content if isinstance(content, dict) else {}


UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Errors of reading a field of a file that another version or program wrote. Such a file counts as absent."""
