"""Reading the files that commands write into a study's folder: missing, damaged or linked files count as absent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import read_json
from addnorm.store.study import COSTS

UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Errors of reading a field of a file that another version or program wrote. Such a file counts as absent."""


def contained(folder: Path, path: Path) -> bool:
    """True if `path` exists and, with links resolved, lies inside `folder`: pages do not follow links that lead out of it."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
    except OSError:
        return False


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


def counted_costs(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Numbers by variant and name that were counted before training: `parameters`, `flops_per_token`, `peak_bytes`.

    Empty for a study of an earlier version, or one that was not made by `addnorm run`.
    """
    variants = content_of(snapshot, COSTS).get("variants")
    if not isinstance(variants, dict):
        return {}
    return {
        name: {key: value for key, value in of.items() if isinstance(value, int | float)}
        for name, of in variants.items()
        if isinstance(of, dict)
    }
