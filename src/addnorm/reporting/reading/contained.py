"""Only what lies in the study's own folder is read for a page, even if a folder from elsewhere holds links that lead out."""

from pathlib import Path


def contained(folder: Path, path: Path) -> bool:
    """Whether `path` exists and, links followed, lies inside `folder`."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
    except OSError:
        return False
