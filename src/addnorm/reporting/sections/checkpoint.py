"""One measured checkpoint: where it is, the text that it was measured on, and what was not found in it."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.checkpoints import measured_checkpoints
from addnorm.reporting.reading.inspections import NAME as INSIGHT
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, View


class CheckpointSection(Section):
    """Head of the page of one checkpoint."""

    order = 145
    pages = (CHECKPOINT_PAGE,)
    in_report = "model"
    run_files = (INSIGHT,)
    sources = frozenset({"study", "checkpoints"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"one": next(each for each in measured_checkpoints(snapshot) if each.name == view.variant)}
