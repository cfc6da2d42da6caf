"""Parts of a study's report that a table of runs cannot have, each with its reason."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import phrases, translated


class AbsentSection(Section):
    """The parts that are missing. Sections name their own reasons (`Section.absence`)."""

    order = 195
    in_report = "end"
    sources = frozenset({"table"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        # Imported here: this file is one of those that the package looks for.
        from addnorm.reporting.sections import sections

        t = phrases(view.language)
        absences = dict.fromkeys(each.absence for each in sections().values() if each.absence)
        parts = [(t(f"absent.{name}_part"), t(f"absent.{name}")) for name in absences]
        if snapshot.table is not None and snapshot.table.no_curves is not None:
            parts.insert(0, (t("curves.title"), translated(snapshot.table.no_curves, t)))
        return {"absent": parts}
