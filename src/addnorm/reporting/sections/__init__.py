"""Everything that pages and reports show: one file per section, found by its presence in this folder."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot, SourceKind
from addnorm.reporting.view import CHECKPOINT_PAGE, CHECKPOINTS_PAGE


def sections() -> Mapping[str, type[Section]]:
    """All sections by name, in their order.

    Raises:
        TypeError: a module of this folder defines no section, or several; one whose name begins with an underscore is skipped.
    """
    classes = _sections_in(__name__, tuple(__path__))
    return dict(sorted(classes.items(), key=lambda item: item[1].order))


@functools.cache
def _sections_in(package: str, folders: tuple[str, ...]) -> Mapping[str, type[Section]]:
    """The section that each module of a package defines, by module name. A package in it without one is a group: its modules
    count as the package's own."""
    by_module: dict[str, type[Section]] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")):
        module = importlib.import_module(f"{package}.{name}")
        # Imported names do not count (`__module__` differs), so that a section may import another one's class for a
        # type, and a package's `__init__` defines the section that its modules serve.
        classes = [
            cls
            for _, cls in inspect.getmembers(module, inspect.isclass)
            if issubclass(cls, Section) and cls.__module__ == module.__name__
        ]
        if not classes and hasattr(module, "__path__"):
            by_module |= _sections_in(module.__name__, tuple(module.__path__))
        elif len(classes) == 1:
            by_module[name] = classes[0]
        else:
            raise TypeError(f"{package}.{name}: expected one subclass of Section, got {len(classes)}.")
    return by_module


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
