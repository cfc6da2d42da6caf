"""The studies of a folder: found, read and watched by one thread.

A study is a folder with a `study.json`, at most three folders deep; links to other folders are not followed. A study whose page
is open is looked at as often as a single one would be, the others every few seconds.
"""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from starlette.applications import Starlette

from addnorm.errors import AddnormError, InputError
from addnorm.reporting.reader import Reader
from addnorm.web.app import StudySite
from addnorm.web.listeners import Watcher
from addnorm.web.live import Live
from addnorm.web.note_writer import NoteWriter

_DEEPEST = 3
_REST_S = 2.0
"""Between two looks at a study whose page is not open, and between two searches for new studies."""
_OPENED_AT_ONCE_S = 1.0


# A study is read when its page is first asked for, or in the first second of the server. `_opening` makes two
# visitors of a large study wait for one reading instead of starting two. `site` and `app` are set together and last,
# so that no thread sees a study that is half open; a study that could not be read keeps its reason and is tried again
# at the next look.
class WatchedStudy:
    """One study of the folder.

    Args:
        path: its folder.
        name: its path within the folder of all studies.
        notes: takes notes; None if they can only be read.
    """

    def __init__(self, path: Path, name: str, notes: NoteWriter | None) -> None:
        self.path, self.name, self._notes = path, name, notes
        self.key = hashlib.sha256(name.encode()).hexdigest()[:12]
        """Names it in a page, whatever its folder is called."""
        self.trouble: str | None = None
        """Reason why it cannot be read."""
        self.site: StudySite | None = None
        """None before it is read."""
        self.app: Starlette | None = None
        self._opening = threading.Lock()
        self._looked = 0.0

    def open(self) -> bool:
        """Read the study, unless that has been done. Returns whether it can be shown."""
        with self._opening:
            if self.site is None:
                try:
                    live = Live(Reader(self.path))
                    site = StudySite(self.path, live, self._notes, home="/")
                except (AddnormError, OSError) as error:
                    self.trouble = str(error)
                    return False
                self.app = Starlette(routes=site.routes(), exception_handlers={404: site.not_found})
                self.site, self.trouble = site, None
        return True

    def look(self) -> bool:
        """Look at the study if it is time. Returns whether anything is new."""
        now = time.monotonic()
        is_watched = self.site is not None and len(self.site.live.listeners) > 0
        if not is_watched and now - self._looked < _REST_S:
            return False
        self._looked = now
        before = (self.trouble, self.number)
        if self.open() and self.site is not None:
            try:
                self.site.live.look()
                self.trouble = None
            except (AddnormError, OSError) as error:  # the folder may be moved, or on a disk that comes back
                self.trouble = str(error)
        # Trouble counts as news: a folder that disappears has no new number, and its row has to say why it no longer
        # moves.
        return before != (self.trouble, self.number)

    @property
    def number(self) -> int:
        """Of the newest change; -1 before it is read."""
        return -1 if self.site is None else self.site.live.now()[1]


class Studies(Watcher):
    """All studies of a folder.

    Args:
        folder: the folder.
        notes: takes notes; None if they can only be read.
        every_s: seconds between two looks at a study whose page is open.

    Raises:
        InputError: there is no study in it.
    """

    def __init__(self, folder: Path, notes: NoteWriter | None, *, every_s: float = 0.3) -> None:
        super().__init__("addnorm studies", every_s)
        self.folder, self.notes = folder, notes
        self._studies: dict[str, WatchedStudy] = {}
        self._changed: dict[str, int] = {}
        """Number of the newest change by study."""
        self._number = self._number_of_set = 0
        self._guard = threading.Lock()
        self._searched = time.monotonic()
        self.search()
        if not self._studies:
            raise InputError(
                f"{folder} holds no study: expected a study.json in it, or in a folder within. Give a folder created by "
                "`addnorm run`, or one that holds such folders."
            )
        end = time.monotonic() + _OPENED_AT_ONCE_S
        for study in self.all():
            if time.monotonic() < end:
                study.open()

    def all(self) -> list[WatchedStudy]:
        """Every study, by name."""
        with self._guard:
            return [self._studies[name] for name in sorted(self._studies)]

    def at(self, path: str) -> WatchedStudy | None:
        """The study whose name a path is, or begins with."""
        with self._guard:
            parts = path.strip("/").split("/")
            names = ("/".join(parts[:count]) for count in range(1, min(len(parts), _DEEPEST) + 1))
            return next((self._studies[name] for name in names if name in self._studies), None)

    def search(self) -> None:
        """Find new studies, and forget those that are gone."""
        present = dict(_studies_in(self.folder))
        with self._guard:
            if present.keys() == self._studies.keys():
                return
            for gone in self._studies.keys() - present.keys():
                site = self._studies.pop(gone).site
                if site is not None:
                    site.live.stop()
            for name in present.keys() - self._studies.keys():
                self._studies[name] = WatchedStudy(present[name], name, self.notes)
            self._number += 1
            # A page that is older than the present set of studies reloads: rows have to appear or to go, which no
            # exchange does.
            self._number_of_set = self._number
        self.listeners.wake()

    def look(self) -> None:
        """Look at every study whose time it is, and announce what changed."""
        if time.monotonic() - self._searched >= _REST_S:
            self._searched = time.monotonic()
            self.search()
        for study in self.all():
            if self._stop.is_set():
                return
            if study.look():
                with self._guard:
                    self._number += 1
                    self._changed[study.name] = self._number
                self.listeners.wake()

    def since(self, number: int) -> tuple[int, list[WatchedStudy] | None]:
        """The newest number, and the studies that changed after a number; None if the page must be loaded again."""
        with self._guard:
            if not self._number_of_set <= number <= self._number:
                return self._number, None
            names = [name for name, at in self._changed.items() if at > number and name in self._studies]
            return self._number, [self._studies[name] for name in names]

    @property
    def number(self) -> int:
        """Of the newest change."""
        with self._guard:
            return self._number

    def stop(self) -> None:
        """Stop the thread and release every waiting page, those of the single studies too."""
        super().stop()
        for study in self.all():
            if study.site is not None:
                study.site.live.stop()


def holds_studies(folder: Path) -> bool:
    """True if there is a study within the folder."""
    return next(_studies_in(folder), None) is not None


def _studies_in(folder: Path, depth: int = 1, above: str = "") -> Iterator[tuple[str, Path]]:
    """Names and folders of the studies within a folder."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # not readable, or gone meanwhile
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        path, name = Path(entry.path), f"{above}{entry.name}"
        if (path / "study.json").is_file():
            yield name, path
        elif depth < _DEEPEST:
            yield from _studies_in(path, depth + 1, f"{name}/")
