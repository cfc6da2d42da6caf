"""A page that shows results is a look at them, and looks are recorded (see `addnorm.store.peeks`).

Recorded is a look at new results, not a loading of the page: once per set of finished runs, and not at all if a look at as many
of the same plan's runs stands there already, be it by another page or by `addnorm rank`. Before any run has finished there is
nothing to see.
"""

import threading
from pathlib import Path

from addnorm.errors import AddnormError
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.extension import hashes
from addnorm.store.peeks import peeks, record_peek


class Peeks:
    """Records looks at one study's results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: frozenset[str] = frozenset()
        self._guard = threading.Lock()

    def record(self, snapshot: Snapshot) -> str | None:
        """Record a look at the snapshot's results, if they are new.

        Returns:
            Why it could not be recorded; None if it is, or need not be.
        """
        finished = frozenset(run.run for run in snapshot.runs if run.state == "finished")
        with self._guard:
            if finished <= self._seen:
                return None
            try:
                plan = hashes(dict(snapshot.plan))[-1]
                known = peeks(self.folder)
                if not any(look["finished"] >= len(finished) and look["plan_hash"] == plan for look in known):
                    # As `StudyFolder.record_peek`, but for the results that this page shows, which may be a moment old.
                    record_peek(self.folder, finished=len(finished), plan_hash=plan)
            except (AddnormError, OSError) as error:
                return str(error)
            self._seen = finished
            return None
