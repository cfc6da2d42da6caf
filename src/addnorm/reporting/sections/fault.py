"""The fault in a table of runs, above its last good state."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import MODEL_PAGE, View
from addnorm.words import phrases, translated


class FaultSection(Section):
    """The fault, with the line of the file and what to do; nothing while the table is well."""

    order = 2
    # On every page of a table: each shows numbers that are older than the file.
    pages = ("overview", "ranking", "curves", MODEL_PAGE)
    sources = frozenset({"table"})
    in_report = None
    follows = frozenset({"fault"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        fault = snapshot.fault
        return {"fault": None if fault is None else translated(fault, phrases(view.language))}
