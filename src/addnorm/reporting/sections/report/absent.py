"""Parts that a report does not have, each with its reason: those that a table of runs cannot have, or this study has not."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.inspections import not_inspected
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import Phrases, phrases, translated


class AbsentSection(Section):
    """The parts that are missing. For a table of runs, sections name their own reasons (`Section.absence`)."""

    order = 195
    in_report = "end"
    sources = frozenset({"table", "study"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        # Imported here: this file is one of those that the package looks for.
        from addnorm.reporting.sections import sections

        t = phrases(view.language)
        if snapshot.source == "study":
            return {"absent": _of_study(snapshot, view, t), "of_study": "_of_study"}
        absences = dict.fromkeys(each.absence for each in sections().values() if each.absence)
        parts = [(t(f"absent.{name}_part"), t(f"absent.{name}")) for name in absences]
        if snapshot.table is not None and snapshot.table.no_curves is not None:
            parts.insert(0, (t("curves.title"), translated(snapshot.table.no_curves, t)))
        return {"absent": parts, "of_study": ""}


def _of_study(snapshot: Snapshot, view: View, t: Phrases) -> list[tuple[str, str]]:
    """Figures without numbers, sections that nobody has measured, and models that could not be measured layer by layer."""
    from addnorm.reporting.sections import sections

    shown = set() if view.report is None else {drawn.figure.name for drawn in view.report.figures}
    parts = [
        (t.translation(f"figures.{figure.name}", figure.caption), t("absent.no_numbers"))
        for section in sections().values()
        for figure in section().figures
        if not figure.is_on_demand and figure.name not in shown and view.report is not None
    ]
    for name in ("lengths", "scalars"):
        if not sections()[name]().is_measured(snapshot, None):
            parts.append((t(f"{name}.title"), t(f"absent.{name}")))
    inside = t("figures.title")
    reasons = not_inspected(snapshot, t, snapshot.variants)
    return parts + [(f"{inside}: {model}", reason or t("absent.not_measured")) for model, reason in reasons.items()]
