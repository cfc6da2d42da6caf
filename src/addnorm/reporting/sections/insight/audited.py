"""The audit of one run of a model (`audit.json` in its folder): its redundant and foldable parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "audit.json"
VERDICTS = ("redundant", "partly_redundant", "foldable", "effective", "negligible", "unproved", "undecided")
"""Verdicts of an audit, as keys of phrases."""


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The newest audit among a model's runs."""

    run: str
    counts: tuple[tuple[str, int, int], ...]
    """Verdict (of `VERDICTS`), number of findings, numbers in those parameters."""
    findings: tuple[tuple[str, str, str, str], ...]
    """Parameter, verdict, redundant of all degrees of freedom, where it folds to; effective ones left out."""


def audited(snapshot: Snapshot, variant: str) -> Audited | None:
    """The audit of the first of the variant's runs that has one."""
    for run in snapshot.of(variant):
        content = content_of(snapshot, f"{run.run}/{NAME}")
        findings = _findings(content)
        if findings:
            verdicts = list(dict.fromkeys(entry["verdict"] for entry in findings))
            return Audited(
                run=run.run,
                counts=tuple(
                    (verdict, len(of), sum(_whole(entry.get("size")) for entry in of))
                    for verdict in verdicts
                    if (of := [entry for entry in findings if entry["verdict"] == verdict])
                ),
                findings=tuple(
                    (
                        str(entry.get("parameter")),
                        entry["verdict"],
                        f"{_whole(entry.get('redundant_dof'))} / {_whole(entry.get('size'))}",
                        str(entry.get("fold_into") or ""),
                    )
                    for entry in findings
                    if entry["verdict"] != "effective"
                ),
            )
    return None


def _findings(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The audit's findings with their verdicts as phrases' keys; none where it is of another version."""
    findings = [
        {**entry, "verdict": str(entry.get("verdict")).replace(" ", "_")}
        for entry in content.get("findings", [])
        if isinstance(entry, dict)
    ]
    return findings if all(entry["verdict"] in VERDICTS for entry in findings) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
