"""Worth of each model's steps in those of the reference: steps to equal loss, also in compute and in time."""

from collections.abc import Mapping
from typing import Any

from addnorm.errors import InputError, JobError
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.store.questions.speedup import Worths, speedup


class WorthsSection(Section):
    """Steps to equal loss against the first reference, once all runs have ended."""

    order = 48
    absence = "cost"
    pages = ("ranking",)
    follows = frozenset({"ranking"})
    shows_results = True

    def __init__(self) -> None:
        self._known: tuple[Any, Worths | None] = (None, None)

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"worths": self._worths(snapshot) if self.is_measured(snapshot, None) else None}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return snapshot.is_study and snapshot.ranking is not None and all(run.is_over for run in snapshot.runs)

    def _worths(self, snapshot: Snapshot) -> Worths | None:
        # Every event of every run is read: kept until one of them has changed.
        key = (snapshot.path, tuple((run.run, run.newest_time) for run in snapshot.runs))
        if self._known[0] != key:
            try:
                answered = speedup(snapshot.path, of="steps", is_look=False)  # the page records its own
            except (InputError, JobError):  # curves of one evaluation, or a run that diverged
                answered = None
            self._known = (key, answered)
        return self._known[1]
