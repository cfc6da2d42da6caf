"""Recording of looks at results through a page (see `addnorm.store.peeks`).

Only looks at new results are recorded, not every loading of a page: once per set of finished runs, and not if a look at as many
runs of the same plan is on record already, from another page or from `addnorm rank`. Before any run has finished there are no
results.
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
