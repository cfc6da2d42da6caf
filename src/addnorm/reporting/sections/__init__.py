"""Everything that pages and reports show: one file per section, found by its presence in this folder."""

from collections.abc import Mapping
from pathlib import Path

from addnorm.reporting.discovery import classes_in
from addnorm.reporting.section import Section


def sections() -> Mapping[str, type[Section]]:
    """All sections by name, in their order."""
    found = classes_in(__name__, __path__, Section)
    return dict(sorted(found.items(), key=lambda item: item[1].order))


def pages() -> Mapping[str, tuple[str, ...]]:
    """The pages of the site with the names of their sections."""
    found: dict[str, list[str]] = {}
    for name, section in sections().items():
        for page in section.pages:
            found.setdefault(page, []).append(name)
    return {page: tuple(names) for page, names in found.items()}


def template_folders() -> list[Path]:
    """Folders that hold the sections' templates; those of sections that only reports have are in a folder of their own."""
    return [Path(folder) / "templates" / part for folder in __path__ for part in ("", "report")]


def study_files() -> frozenset[str]:
    """Files of a study's folder, beside the runs' own, that sections are made from."""
    return frozenset(file for section in sections().values() for file in section.study_files)


def run_files() -> frozenset[str]:
    """The same in each run's folder."""
    return frozenset(file for section in sections().values() for file in section.run_files)
