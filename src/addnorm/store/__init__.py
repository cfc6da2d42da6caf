"""Files of a study: run folders, their events and locks, and an SQLite index that is built from them.

`StudyFolder` and `RunFolder` are the folders, `RunStatus` the state of a run, `EventFollower` the reader of its events.
"""

from addnorm.store.events import Event, EventWriter, first_event, read_events
from addnorm.store.files import Damaged, DiskFull, atomic, read_json, write_atomic, write_json
from addnorm.store.follower import EventFollower, Milestones, unrepeated
from addnorm.store.index import Index
from addnorm.store.lock import Lock, is_held
from addnorm.store.run import NotClaimed, RunFolder
from addnorm.store.status import RunStatus, State
from addnorm.store.study import StudyFolder

__all__ = [
    "Damaged",
    "DiskFull",
    "Event",
    "EventFollower",
    "EventWriter",
    "Index",
    "Lock",
    "Milestones",
    "NotClaimed",
    "RunFolder",
    "RunStatus",
    "State",
    "StudyFolder",
    "atomic",
    "first_event",
    "is_held",
    "read_events",
    "read_json",
    "unrepeated",
    "write_atomic",
    "write_json",
]
