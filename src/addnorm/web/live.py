"""Live updates: changes of the study's folder, sent to every open page in order.

One thread reads the folder a few times a second. Each change gets the next number and is stored with the names of the sections
that changed; the newest changes are kept. A page sends the last number it has seen (the first one is in
the page itself, later ones come as `Last-Event-ID` after a lost connection) and receives all later changes, once and in order.
A page that is older than the kept numbers, or was served by another process, is made to reload.

Ranking many runs takes longest, so changes of the runs are announced first and the ranking afterwards.
"""

import threading
from collections import deque
from dataclasses import dataclass

from addnorm.errors import AddnormError
from addnorm.reporting.changes import EVERYTHING, changed_sections, runs_with_news
from addnorm.reporting.reader import FolderReader
from addnorm.reporting.snapshot import Snapshot
from addnorm.web.listeners import Watcher

_KEPT = 4096


@dataclass(frozen=True, kw_only=True)
class FolderChange:
    """One change."""

    number: int
    sections: frozenset[str]
    runs: frozenset[str]
    """Runs with new events or new files."""


# Two locks. `_guard` protects the pair (snapshot, number) and the list of changes, for microseconds: requests take
# it. `_looking` is held while the folder is read, which may take seconds; only readers take it. With one lock, every
# page would wait for the slowest read of the disk.
#
# Numbers order changes of one process. After a restart they begin again at 0, and a page that is still open would ask
# for changes after 500 and get none for ever. `epoch` is therefore part of each id: an id of another epoch counts as
# older than everything.
#
# Changes are kept by name, not as HTML: pages differ in language, model and chosen curves, and a page that slept
# through 200 changes wants each section once, as it is now, and not 200 times.
class Live(Watcher):
    """The newest snapshot, and the changes that led to it.

    Args:
        reader: reads the folder.
        every_s: seconds between two reads.
    """

    def __init__(self, reader: FolderReader, *, every_s: float = 0.3) -> None:
        super().__init__("addnorm page", every_s)
        self.trouble: str | None = None
        """Reason why the folder cannot be read at present."""
        self._reader = reader
        self._changes: deque[FolderChange] = deque(maxlen=_KEPT)
        self._guard, self._looking = threading.Lock(), threading.Lock()
        self._snapshot = reader.look()
        self._number = 0

    def now(self) -> tuple[Snapshot, int]:
        """The newest snapshot and its number."""
        with self._guard:
            return self._snapshot, self._number

    def look(self) -> None:
        """Read the folder once and announce changes. Any thread may call it."""
        with self._looking:
            # The first read announces steps, losses and states within a fraction of a second; the second one ranks,
            # if any run has ended since. A page therefore shows a finished run before its place in the ranking, never
            # the other way round.
            self._take(self._reader.look(rank=lambda reader: False))
            if self._reader.is_ranking_old:
                self._take(self._reader.look())

    def since(self, number: int) -> tuple[Snapshot, int, frozenset[str], frozenset[str]]:
        """The newest snapshot, its number, and the sections and runs that changed after `number`.

        For a number that is too old, the only section is `EVERYTHING`.
        """
        with self._guard:
            after = [change for change in self._changes if change.number > number]
            # Three kinds of numbers: newer than ours (another server's), up to date (an empty list is the answer),
            # and older than the oldest change that is kept. The last must reload: the union of what is left would
            # miss sections.
            if number > self._number or (number < self._number and (not after or after[0].number > number + 1)):
                return self._snapshot, self._number, frozenset({EVERYTHING}), frozenset()
            sections = frozenset().union(*(change.sections for change in after))
            runs = frozenset().union(*(change.runs for change in after))
            return self._snapshot, self._number, sections, runs

    def _take(self, snapshot: Snapshot) -> None:
        with self._guard:
            before = self._snapshot
            if snapshot is before:
                return
            change = FolderChange(
                number=self._number + 1,
                sections=changed_sections(before, snapshot),
                runs=runs_with_news(before, snapshot),
            )
            self._snapshot, self._number = snapshot, change.number
            self._changes.append(change)
        # Outside the guard: woken pages ask for `since` at once and would wait for the lock that this thread still
        # holds.
        self.listeners.wake()

    def _look_on(self) -> None:
        while not self._stop.wait(self.every_s):
            try:
                self.look()
                self.trouble = None
            except (AddnormError, OSError) as error:  # the folder may be moved, or on a disk that comes back
                self.trouble = str(error)
