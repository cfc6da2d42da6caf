"""The runs of one model."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import MODEL_PAGE, View


class RunsSection(Section):
    """State and newest numbers of each of the model's runs."""

    order = 60
    pages = (MODEL_PAGE,)
    sources = frozenset({"study", "table"})
    in_report = "model"
    follows = frozenset({"runs"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"runs": snapshot.of(view.variant or ""), "has_log": view.is_live and snapshot.is_study}
