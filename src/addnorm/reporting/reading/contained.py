"""Containment in the study's folder: pages do not follow links that lead out of it."""

from pathlib import Path


def contained(folder: Path, path: Path) -> bool:
    """True if `path` exists and, with links resolved, lies inside `folder`."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
    except OSError:
        return False
