"""The pages of a study as files that any web space can serve: no server program, no script, relative addresses alone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import escape

from addnorm.errors import InputError, warn
from addnorm.reporting.formats.names import file_name
from addnorm.reporting.reader import Reader, reader_of
from addnorm.reporting.reading.run_table import TableChoices
from addnorm.reporting.render import STATIC, Pages
from addnorm.reporting.sections import front_of, pages_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import LOG_PAGE, OF_ONE, UNLISTED, View
from addnorm.store.files import make_folder, write_atomic
from addnorm.store.questions.source import record_peek
from addnorm.words import LANGUAGES

_ASSETS = ("page.css", "icon.svg")
Target = tuple[str, str | None]
"""A page, and the model that it is about."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The files of a site."""

    index: Path
    """The page to open."""
    files: tuple[Path, ...]


def write_site(
    path: str | Path, out: str | Path, *, table: TableChoices | None = None, say: Callable[[str], None] = warn
) -> Site:
    """Write the pages of a study, of measured checkpoints, or of a table of runs as files, in every language.

    The pages are those of `addnorm watch`, without what needs a server: logs, forms, and updates. English is in the folder,
    Chinese in its folder `zh`.

    Args:
        path: folder of a study, or one with measured checkpoints; or a table of runs.
        out: a new or empty folder, or one that holds an earlier site.
        table: how a table of runs is read.
        say: receives a message if this look at the results cannot be recorded.

    Raises:
        InputError: the path is neither, or the folder holds other files.
        DiskFull, JobError: a file cannot be written.
    """
    folder = Path(out)
    _require_free(folder)
    reader = reader_of(Path(path), table)
    if isinstance(reader, Reader):
        record_peek(reader.study, say)  # before anything is shown
    for place in (folder, folder / "static", *(folder / code for code in list(LANGUAGES)[1:])):
        make_folder(place)
    snapshot, pages, files = reader.look(), Pages(), list[Path]()
    for language in LANGUAGES:
        shown: set[Target] = set()
        # Which pages there are follows from their links: lists of a large study lead to pages of single models.
        waiting: list[Target] = [(page, None) for page in pages_of(snapshot) if page not in UNLISTED]
        while waiting:
            target = waiting.pop()
            if target in shown:
                continue
            shown.add(target)
            linked: list[Target] = []
            html = _page(pages, snapshot, target, language, linked)
            if snapshot.path.is_absolute():  # commands and reasons name files; where they lay is nobody's business
                html = html.replace(escape(f"{snapshot.path.parent}/"), "")
            files.append(folder / _address(target, language, snapshot))
            write_atomic(files[-1], html.encode())
            waiting += linked
    for name in _ASSETS:
        files.append(folder / "static" / name)
        write_atomic(files[-1], (STATIC / name).read_bytes())
    return Site(index=folder / "index.html", files=tuple(files))


def _page(pages: Pages, snapshot: Snapshot, target: Target, language: str, linked: list[Target]) -> str:
    page, variant = target
    root = "" if language == next(iter(LANGUAGES)) else "../"

    def link(name: str, **query: Any) -> str:
        wanted = (name, query.get("variant"))
        if name == LOG_PAGE or (name not in (*pages_of(snapshot), *OF_ONE)):
            raise ValueError(f"a page without a server leads to {name!r}.")
        linked.append(wanted)
        return root + _address(wanted, language, snapshot)

    view = View(page=page, language=language, link=link, variant=variant, is_live=False)
    return pages.page(
        snapshot,
        view,
        asset=lambda name: f"{root}static/{name}",
        in_language=lambda code: root + _address(target, code, snapshot),
        events="",
        number=0,
    )


def _address(target: Target, language: str, snapshot: Snapshot) -> str:
    """Path of a page in the site's folder."""
    page, variant = target
    name = "index" if page == front_of(snapshot) else page
    name += "" if variant is None else f"-{file_name(variant)}"
    return f"{name}.html" if language == next(iter(LANGUAGES)) else f"{language}/{name}.html"


def _require_free(folder: Path) -> None:
    """Refuse a folder with files that are no site's: a site beside a thesis could not be told apart from it."""
    if folder.is_file():
        raise InputError(f"--site: expected a folder, got the file {folder}.")
    other = (
        [path.name for path in folder.iterdir() if path.name not in ("static", *LANGUAGES)] if folder.is_dir() else []
    )
    foreign = sorted(name for name in other if not name.endswith(".html"))
    if foreign or (other and not (folder / "static" / _ASSETS[0]).is_file()):
        raise InputError(
            f"--site: expected a new folder, or one with an earlier site, got {folder} with {', '.join(foreign or other)}. "
            "Choose another."
        )
