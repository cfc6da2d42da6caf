"""What happens in the study's folder, told to every open page in order.

One thread looks at the folder a few times a second. Each look that finds something new gets the next number, and the names
of the sections that changed with it; the newest numbers are kept. A page says which number it has seen (its first one stands in
the page itself, later ones come back as `Last-Event-ID` when the connection was cut) and is told all that came after, once and
in order. A page from before the kept numbers, or of another server, is told to load itself anew.

A ranking over many runs takes longer than all else, so a look first tells what happened to the runs and then ranks.
"""

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from addnorm.errors import AddnormError
from addnorm.reporting.changes import EVERYTHING, changed_sections, runs_with_news
from addnorm.reporting.reader import Reader
from addnorm.reporting.snapshot import Snapshot

_KEPT = 4096


@dataclass(frozen=True, kw_only=True)
class Change:
    """One look that found something new."""

    number: int
    sections: frozenset[str]
    runs: frozenset[str]
    """Runs with new events or new files."""


class Live:
    """The newest snapshot, and the changes that led to it.

    Args:
        reader: looks at the folder.
        every_s: time between two looks.
    """

    def __init__(self, reader: Reader, *, every_s: float = 0.3) -> None:
        self.epoch = secrets.token_hex(4)
        """Tells this server's numbers from those of one before it."""
        self.every_s = every_s
        self.trouble: str | None = None
        """Why the folder cannot be read at present."""
        self._reader = reader
        self._changes: deque[Change] = deque(maxlen=_KEPT)
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._snapshot = reader.look()
        self._number = 0

    def start(self) -> None:
        """Begin to look at the folder again and again."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_on, name="addnorm page", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop looking, and let every waiting page go."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._wake()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def now(self) -> tuple[Snapshot, int]:
        """The newest snapshot and its number."""
        with self._guard:
            return self._snapshot, self._number

    def look(self) -> None:
        """Look once, and tell what is new."""
        self._take(self._reader.look(rank=lambda reader: False))
        if self._reader.is_ranking_old:
            self._take(self._reader.look())

    def since(self, number: int) -> tuple[Snapshot, int, frozenset[str], frozenset[str]]:
        """The newest snapshot, its number, and the sections and runs that changed after `number`.

        A number that is too old to say answers with the one section "everything".
        """
        with self._guard:
            after = [change for change in self._changes if change.number > number]
            if number > self._number or (number < self._number and (not after or after[0].number > number + 1)):
                return self._snapshot, self._number, frozenset({EVERYTHING}), frozenset()
            sections = frozenset().union(*(change.sections for change in after))
            runs = frozenset().union(*(change.runs for change in after))
            return self._snapshot, self._number, sections, runs

    def listen(self) -> tuple[asyncio.Event, Callable[[], None]]:
        """An event that is set at every change, and what to call when it is no longer waited for."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._guard:
            self._listeners.add(entry)

        def leave() -> None:
            with self._guard:
                self._listeners.discard(entry)

        return entry[1], leave

    def _take(self, snapshot: Snapshot) -> None:
        with self._guard:
            before = self._snapshot
            if snapshot is before:
                return
            change = Change(
                number=self._number + 1,
                sections=changed_sections(before, snapshot),
                runs=runs_with_news(before, snapshot),
            )
            self._snapshot, self._number = snapshot, change.number
            self._changes.append(change)
        self._wake()

    def _wake(self) -> None:
        with self._guard:
            listeners = list(self._listeners)
        for loop, event in listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def _look_on(self) -> None:
        while not self._stop.wait(self.every_s):
            try:
                self.look()
                self.trouble = None
            except (AddnormError, OSError) as error:  # the folder may be moved, or on a disk that comes back
                self.trouble = str(error)
