"""Totals over all runs: while something is to be done, runs by state and progress; afterwards one line."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import ORDER, Snapshot
from addnorm.reporting.view import View
from addnorm.store import State


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Runs by state."""

    runs: int
    models: int
    counts: tuple[tuple[State, int], ...]
    """Every state that totals always show, and any other that occurs."""
    has_ended: bool
    """True if no run is at work or waits."""
    done_share: float
    """Steps done over all steps, 0 to 1."""
    tokens: int | None
    """Tokens that the runs have been trained on, repeated steps not counted; None for a plan that does not tell."""
    wall_s: float | None
    """Time of all ended runs, one after the other; None if no run has ended."""
    left_s: float | None
    """Time to the study's end at the running workers' present speed."""
    newest_time: float | None


class TotalsSection(Section):
    """Totals."""

    order = 10
    pages = ("overview",)
    sources = frozenset({"study", "table"})
    in_report = None
    follows = frozenset({"runs"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"totals": totals(snapshot)}


def totals(snapshot: Snapshot) -> Totals:
    """Totals of all runs, those of tuning included."""
    counted = Counter(run.state for run in snapshot.all_runs)
    always = ("finished", "running", "queued", "interrupted", "failed")
    steps = sum(run.steps for run in snapshot.all_runs)
    speeds = [run.steps_per_s for run in snapshot.all_runs if run.state == "running" and run.steps_per_s]
    to_do = sum(r.steps - r.step for r in snapshot.all_runs if not r.is_over)
    walls = [run.wall_s for run in snapshot.all_runs if run.wall_s is not None]
    return Totals(
        runs=len(snapshot.all_runs),
        models=len(snapshot.variants or snapshot.plan.get("variants", ())),  # none has a run while tuning is under way
        counts=tuple((state, counted[state]) for state in ORDER if counted[state] or state in always),
        has_ended=all(run.is_over for run in snapshot.all_runs),
        done_share=min(1.0, sum(run.step for run in snapshot.all_runs) / steps) if steps > 0 else 0.0,
        tokens=snapshot.tokens_of(snapshot.all_runs),
        wall_s=sum(walls) if walls else None,
        left_s=to_do / sum(speeds) if speeds else None,
        newest_time=snapshot.newest_time,
    )
