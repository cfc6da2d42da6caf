"""Title block of a report: date, versions, machine and cost of the study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.reading.study_files import content_of, counted_costs
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import ORDER, Snapshot
from addnorm.reporting.view import View
from addnorm.store.extension import seeds_again

_VERSIONS = ("addnorm", "torch", "python")
_MACHINE = ("device", "cpu_capability", "platform")


@dataclass(frozen=True, kw_only=True)
class Title:
    """The study's name and what its numbers are from."""

    study: str
    newest_time: float | None
    """When the newest number was written."""
    versions: str
    machine: str
    """Versions and machine of all runs, several values separated by strokes; empty if no run has started."""
    threads: str
    """Threads of each run."""
    models: int
    seeds: int
    """Of the first batch."""
    second_seeds: int
    """Of the second batch, which some variants have; 0 if none is planned."""
    runs: int
    unpaired: bool
    """True of a table whose variants share no seeds."""
    states: tuple[tuple[str, int], ...]
    tokens: int | None
    wall_s: float | None
    """Time of all ended runs, one after the other."""
    flops: float | None
    """Counted for the tokens of all runs; None if a model's cost is not known."""


class TitleSection(Section):
    """The title block."""

    order = 1
    in_report = "opening"
    sources = frozenset({"study", "table"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"title": title(snapshot)}


def title(snapshot: Snapshot) -> Title:
    """Read the title block from the runs' files."""
    known = [env for run in snapshot.runs if (env := content_of(snapshot, f"{run.run}/env.json"))]
    walls = [run.wall_s for run in snapshot.all_runs if run.wall_s is not None]
    seeds, second = {run.seed for run in snapshot.runs}, set(seeds_again(snapshot.plan))
    counts = {state: sum(run.state == state for run in snapshot.all_runs) for state in ORDER}
    return Title(
        study=snapshot.study,
        newest_time=snapshot.newest_time,
        versions=" · ".join(f"{name} {_all(known, name)}" for name in _VERSIONS if _all(known, name)),
        machine=" · ".join(filter(None, (_all(known, name) for name in _MACHINE))),
        threads=_all(known, "threads"),
        models=len(snapshot.variants),
        seeds=len(seeds - second),
        second_seeds=len(seeds & second),
        runs=len(snapshot.all_runs),
        unpaired=snapshot.ranking is not None and snapshot.ranking.unpaired,
        states=tuple((state, count) for state, count in counts.items() if count),
        tokens=snapshot.tokens_of(snapshot.all_runs),
        wall_s=sum(walls) if walls else None,
        flops=_flops(snapshot),
    )


def _all(known: Sequence[Mapping[str, Any]], name: str) -> str:
    """The different values of a fact."""
    return " / ".join(dict.fromkeys(str(env[name]) for env in known if name in env))


def _flops(snapshot: Snapshot) -> float | None:
    costs = counted_costs(snapshot)
    parts = []
    for variant in snapshot.variants:
        tokens, cost = snapshot.tokens_of(snapshot.of(variant)), costs.get(variant, {}).get("flops_per_token")
        if tokens is None or cost is None:
            return None
        parts.append(tokens * float(cost))
    return sum(parts) if parts and not snapshot.tuning_runs else None
