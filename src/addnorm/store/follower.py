"""Following a run's events while they are being written: one reader for the index, the status, the pages and the trackers.

A position is the byte offset of the start of a line. An `EventFollower` returns the events that were appended since its
position and moves the position on; a caller that stores the position continues there in another process.

- A torn last line (its writer was killed or is still writing) is not an event yet. It is left for the next read.
- A file that was cut short, replaced or deleted no longer continues what was read: `is_continued` tells it, and reading on
  raises `Damaged`. Every caller decides what to discard before it calls `restart`.
- A resumed run repeats the steps after its checkpoint and writes their events again, under the next attempt number. The
  follower returns all of them in file order. A caller that needs one event per step either keeps the newest attempt's (the
  index), or the first attempt's (`unrepeated`).
"""

from collections.abc import Collection, Iterable, Iterator, MutableMapping
from pathlib import Path

from addnorm.store.events import Event, decode_event, read_events, type_mark
from addnorm.store.files import Damaged
from addnorm.store.lines import lines_from_end, starts_line

_CHUNK_BYTES = 1 << 22


class EventFollower:
    """Reader of the events that are appended to one file.

    Args:
        path: the `events.jsonl`; a missing file has no events.
        position: byte offset at which an earlier follower stopped, or 0.
        types: event types to return; all if not given. Lines of other types are skipped without being decoded.

    Example:
        >>> follower = EventFollower(run.events_path)  # doctest: +SKIP
        >>> [event["step"] for event in follower.read()]  # doctest: +SKIP
        [0, 10, 20]
        >>> list(follower.read())  # nothing was appended since  # doctest: +SKIP
        []
    """

    def __init__(self, path: Path, position: int = 0, *, types: Collection[str] | None = None) -> None:
        self.path = path
        self.position = position
        self.types = None if types is None else frozenset(types)

    @property
    def is_continued(self) -> bool:
        """False once the file was cut short, replaced by a shorter one or deleted."""
        return starts_line(self.path, self.position)

    def restart(self, position: int = 0) -> None:
        """Continue from another position."""
        self.position = position

    def read(self) -> Iterator[Event]:
        """New events, up to the end of the file.

        Raises:
            Damaged: a line is not an event, or the file was replaced.
            JobError: the file cannot be read.
        """
        for events in self.chunks():
            yield from events

    def chunks(self) -> Iterator[list[Event]]:
        """New events in batches of about 4 MiB of the file. `position` is the end of the batch that was returned last.

        Raises:
            Damaged, JobError: as `read`.
        """
        while True:
            events, reached = read_events(self.path, self.position, limit_bytes=_CHUNK_BYTES, types=self.types)
            if reached == self.position:
                return
            # The position is that of the whole batch, and moves on before the batch is handed out. A caller that stores
            # it must have taken every event of the batch, in one transaction with the position: then no event is lost
            # or counted twice.
            self.position = reached
            yield events


def unrepeated(events: Iterable[Event], furthest: MutableMapping[str, int]) -> Iterator[Event]:
    """Events at steps that no earlier event of the same type has reached: each step of a resumed run once.

    Args:
        events: in file order.
        furthest: largest step so far by event type, below 0 where missing: a model that is evaluated without training has its
            only evaluation at step 0. Updated; store it together with the position.
    """
    for event in events:
        if event["step"] > furthest.get(event["type"], -1):
            furthest[event["type"]] = event["step"]
            yield event


class NewestEvents:
    """Newest event of a file, and the newest training and evaluation event.

    The first `look` reads from the end of the file, so that the status of a long run costs no more than that of a short
    one; later ones read what was appended.
    """

    TYPES = ("train", "eval")

    def __init__(self, path: Path) -> None:
        self.last: Event | None = None
        """Newest event of any type."""
        self.of_type: dict[str, Event] = {}
        """Newest event of each of `TYPES` that occurred."""
        self._follower = EventFollower(path)

    def look(self) -> "NewestEvents":
        """Read what was appended; start again if the file was replaced.

        Raises:
            Damaged: one of the lines that were read is not an event.
        """
        follower = self._follower
        # A position at which no line starts any more means that the file is another one: what was read from the old one
        # is forgotten as a whole. A file that was replaced by a longer one with a line break at this very byte goes
        # unnoticed here; the index, which stores positions for long, therefore compares the hash of the first line too.
        if follower.position and follower.is_continued:
            for event in follower.read():
                self._take(event)
        else:
            self.last, self.of_type = None, {}
            follower.restart()
            self._read_from_end()
        return self

    def _read_from_end(self) -> None:
        path = self._follower.path
        missing = {kind: type_mark(kind) for kind in self.TYPES}
        # The newest line is decoded whatever it is; of the others, only those whose bytes contain a type that is still
        # missing. A long run between two evaluations has ten thousand training events, and decoding them all is what
        # this avoids.
        for end, line in lines_from_end(path):
            if self.last is not None and not any(mark in line for mark in missing.values()):
                continue
            try:
                event = decode_event(line)
            except ValueError as error:
                raise Damaged(f"{path} is damaged in the line that ends at byte {end}: {error}.") from error
            if self.last is None:
                self.last = event
                # From the end of the newest complete line on, events are read forward. The end of the file would be
                # wrong: a line that is being written now would later be read from its middle.
                self._follower.restart(end)
            if event["type"] in missing:
                self.of_type[event["type"]] = event
                del missing[event["type"]]
            if not missing:
                return

    def _take(self, event: Event) -> None:
        self.last = event
        if event["type"] in self.TYPES:
            self.of_type[event["type"]] = event


class Milestones:
    """Events that tell how a run started, what it repeated and how it ended, oldest first.

    A run of a day writes a hundred thousand training events and a handful of milestones.
    """

    TYPES = ("start", "rejected", "replayed", "failed", "diverged", "end")

    def __init__(self, path: Path) -> None:
        self.events: list[Event] = []
        self._follower = EventFollower(path, types=self.TYPES)

    def look(self) -> list[Event]:
        """Read what was appended and return every milestone so far.

        Raises:
            Damaged, JobError: the line of a milestone is damaged, or the file cannot be read.
        """
        if not self._follower.is_continued:
            self.events = []
            self._follower.restart()
        self.events += self._follower.read()
        return self.events
