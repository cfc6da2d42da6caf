"""Runs that failed, diverged or are blocked, with their reasons and the end of their logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import View
from addnorm.store import RunFolder

_LOST = ("failed", "diverged", "blocked")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A run that failed, diverged or is blocked."""

    run: RunView
    log: tuple[str, ...]
    """Last lines of its worker's log."""
    is_outside: bool
    """True if the log lies outside the study's folder and was therefore not read."""


class FailuresSection(Section):
    """Failures."""

    order = 120
    absence = "record"
    pages = ("record",)
    follows = frozenset({"states"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"failures": failures(snapshot), "variants": snapshot.variants, "is_live": view.is_live}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return any(run.state in _LOST for run in snapshot.all_runs)


def failures(snapshot: Snapshot) -> list[Failure]:
    """Runs that failed, diverged or are blocked, in plan order."""
    failed = []
    for run in snapshot.all_runs:
        if run.state in _LOST:
            folder = RunFolder(snapshot.path / run.run)
            inside = contained(snapshot.path, folder.log_path)
            recorded = (folder.ending() or {}).get("log") if contained(snapshot.path, folder.path) else None
            log = (
                [str(line) for line in recorded]
                if isinstance(recorded, list)
                else folder.last_words()
                if inside
                else []
            )
            failed.append(Failure(run=run, log=tuple(log), is_outside=not inside and folder.log_path.exists()))
    return failed
