"""Everything that pages and reports show: one file per section, found by its presence in this folder."""

from collections.abc import Mapping
from pathlib import Path

from addnorm.reporting.discovery import classes_in
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot, SourceKind
from addnorm.reporting.view import CHECKPOINT_PAGE, CHECKPOINTS_PAGE


def sections() -> Mapping[str, type[Section]]:
    """All sections by name, in their order."""
    classes = classes_in(__name__, __path__, Section)
    return dict(sorted(classes.items(), key=lambda item: item[1].order))


def pages(source: SourceKind | None = None) -> Mapping[str, tuple[str, ...]]:
    """The pages of the site with the names of their sections.

    Args:
        source: what they show; sections that it does not have are left out. All sections unless given.
    """
    of_page: dict[str, list[str]] = {}
    for name, section in sections().items():
        for page in section.pages if source is None or source in section.sources else ():
            of_page.setdefault(page, []).append(name)
    return {page: tuple(names) for page, names in of_page.items()}


def pages_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of the pages that a folder has, in the order of the navigation."""
    if snapshot.is_study:
        of_checkpoints = (CHECKPOINTS_PAGE, CHECKPOINT_PAGE)
        return tuple(page for page in pages("study") if snapshot.checkpoints or page not in of_checkpoints)
    if snapshot.source == "table":
        return tuple(pages("table"))
    known = sections()
    return tuple(page for page, names in pages().items() if all("checkpoints" in known[n].sources for n in names))


def front_of(snapshot: Snapshot) -> str:
    """Name of the page that a folder opens with."""
    return CHECKPOINTS_PAGE if snapshot.source == "checkpoints" else "overview"


def template_folders() -> list[Path]:
    """Folders that hold the sections' templates; those of sections that only reports have are in a folder of their own."""
    return [Path(folder) / "templates" / part for folder in __path__ for part in ("", "report")]


def study_files() -> frozenset[str]:
    """Files of a study's folder that sections are made from, without those of its runs."""
    return frozenset(file for section in sections().values() for file in section.study_files)


def run_files() -> frozenset[str]:
    """The same in each run's folder."""
    return frozenset(file for section in sections().values() for file in section.run_files)
