"""The few events that tell a run's story: how it was started, what it repeated, how it ended. The many are passed over.

A run of a day has a hundred thousand training events and a handful of these, so lines of the other types are told by their
mark and never decoded; and what was read once is not read again.
"""

import json
from pathlib import Path

from addnorm.store.events import Event, decode_event
from addnorm.store.lines import Record, read_lines, starts_line

TYPES = ("start", "rejected", "replayed", "failed", "diverged", "end")
_MARKS = tuple(f'"type":{json.dumps(kind)}'.encode() for kind in TYPES)
_CHUNK_BYTES = 1 << 22


class Milestones:
    """The milestones of one events file, oldest first. The first look reads it whole, later ones what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events: list[Event] = []
        self._offset = 0

    def look(self) -> list[Event]:
        """Every milestone so far.

        Raises:
            Damaged, JobError: one of their lines is damaged, or the file cannot be read.
        """
        if not starts_line(self.path, self._offset):
            self.events, self._offset = [], 0
        while True:
            found, reached = read_lines(self.path, self._offset, limit_bytes=_CHUNK_BYTES, decode=_decode)
            self.events += [event for event in found if event]
            if reached == self._offset:
                return self.events
            self._offset = reached


def _decode(line: bytes) -> Record:
    return decode_event(line) if any(mark in line for mark in _MARKS) else {}
