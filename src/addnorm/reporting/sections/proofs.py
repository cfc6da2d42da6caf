"""Resumed runs: the steps that were repeated, and whether they were bit-identical."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.errors import AddnormError
from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import RunView, Snapshot
from addnorm.reporting.view import View
from addnorm.store import Milestones


@dataclass(frozen=True, kw_only=True)
class Resume:
    """One attempt after the first."""

    attempt: int
    time: float | None
    resumed_from: int
    replayed: tuple[tuple[int, int], ...]
    """First and last of each range of repeated steps that were bit-identical."""
    replayed_steps: int
    rejected: tuple[str, ...]
    """Checkpoints that were skipped, with the reason."""
    differs: str | None
    """Description of the difference."""
    is_at_work: bool
    """True if the attempt has not ended and may still repeat steps."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A run that was interrupted and resumed."""

    run: RunView
    resumes: tuple[Resume, ...]


class ProofsSection(Section):
    """Resume proofs. Each events file is read once, and then only what was added to it."""

    order = 130
    absence = "record"
    pages = ("record",)
    follows = frozenset({"resumes", "states"})

    def __init__(self) -> None:
        self._milestones: dict[str, Milestones] = {}

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"proofs": self.proofs(snapshot)}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return any(run.attempts > 1 for run in snapshot.runs)

    def proofs(self, snapshot: Snapshot) -> list[Proof]:
        """A proof per run that took more than one attempt, in plan order."""
        of_runs = []
        for run in snapshot.runs:
            path = snapshot.path / run.run / "events.jsonl"
            if run.attempts > 1 and contained(snapshot.path, path):
                milestones = self._milestones.setdefault(run.run, Milestones(path))
                try:
                    resumes = _resumes(run, milestones.look())
                except AddnormError:
                    resumes = ()  # the run is shown as blocked, with this reason
                of_runs.append(Proof(run=run, resumes=resumes))
        return of_runs


def _resumes(run: RunView, milestones: list[dict[str, Any]]) -> tuple[Resume, ...]:
    resumes = []
    for attempt in sorted({event["attempt"] for event in milestones} - {1}):
        events = [event for event in milestones if event["attempt"] == attempt]
        start = next((event for event in events if event["type"] == "start"), None)
        spans = [
            (int(e["first"]), int(e["last"])) for e in events if e["type"] == "replayed" and e.get("equal") is True
        ]
        bad = next((e for e in events if e["type"] == "diverged"), None)
        resumes.append(
            Resume(
                attempt=attempt,
                time=events[0].get("time"),
                resumed_from=int(start["resumed_from"]) if start is not None else 0,
                replayed=_merged(spans),
                replayed_steps=sum(last - first + 1 for first, last in _merged(spans)),
                rejected=tuple(f"{e.get('checkpoint')}: {e.get('reason')}" for e in events if e["type"] == "rejected"),
                differs=str(bad.get("reason")) if bad is not None else None,
                is_at_work=run.state == "running" and attempt == run.attempts,
            )
        )
    return tuple(resumes)


def _merged(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
