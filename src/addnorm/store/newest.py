"""The newest event of each type that a status needs, without reading a long run from its start."""

import json
from pathlib import Path

from addnorm.store.events import Event, decode_event, read_events
from addnorm.store.files import Damaged
from addnorm.store.lines import lines_from_end, starts_line

TYPES = ("train", "eval")


class Newest:
    """What happened last in one events file. The first look reads from the end, later ones only what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: Event | None = None
        """The newest event of any type."""
        self.of_type: dict[str, Event] = {}
        """The newest event of each of `TYPES` that occurred."""
        self._offset = 0

    def look(self) -> "Newest":
        """Bring the answers up to date.

        Raises:
            Damaged: one of the lines that were read is not an event.
        """
        if self._offset and starts_line(self.path, self._offset):
            events, self._offset = read_events(self.path, self._offset)
            for event in events:
                self._keep(event)
            return self
        self.last, self.of_type, self._offset = None, {}, 0
        self._read_from_end()
        return self

    def _read_from_end(self) -> None:
        missing = {kind: f'"type":{json.dumps(kind)}'.encode() for kind in TYPES}
        for end, line in lines_from_end(self.path):
            if self.last is not None and not any(mark in line for mark in missing.values()):
                continue
            try:
                event = decode_event(line)
            except ValueError as error:
                raise Damaged(f"{self.path} is damaged in the line that ends at byte {end}: {error}.") from error
            if self.last is None:
                self.last, self._offset = event, end
            kind = event.get("type")
            if kind in missing:
                self.of_type[kind] = event
                del missing[kind]
            if not missing:
                return

    def _keep(self, event: Event) -> None:
        self.last = event
        if event.get("type") in TYPES:
            self.of_type[event["type"]] = event
