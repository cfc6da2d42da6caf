"""The runs that are being trained: where, and how much of the machine their workers use."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View


class WorkersSection(Section):
    """Use of processors, memory and GPU, as the workers recorded it with their newest training event."""

    order = 112
    pages = ("cost",)
    in_report = None
    follows = frozenset({"runs"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        running = [run for run in snapshot.all_runs if run.state == "running"]
        return {"workers": running, "variants": snapshot.variants}
