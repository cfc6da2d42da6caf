"""What of the pages is no longer true: sections that show something else than at an earlier look, and runs with news."""

from pathlib import PurePath

from addnorm.reporting.pages import audits, cost, explained, insight, lengths, scalars, terms
from addnorm.reporting.pages.snapshot import Snapshot

OF_STUDY = {lengths.NAME: "lengths", audits.NAME: "cost", cost.NAME: "cost", explained.NAME: "scalars"}
"""Files of a study's folder that pages are made from, beside the runs' own, and the section that shows each."""
OF_RUN = {insight.NAME: "insight", insight.AUDIT: "insight", terms.NAME: "terms", scalars.NAME: "scalars"}
"""The same in a run's folder."""


def changed_sections(before: Snapshot, now: Snapshot) -> frozenset[str]:
    """Names of the sections that show something else now than before; `card-N` for one model's card."""
    if now is before:
        return frozenset()
    if now.variants != before.variants or len(now.runs) != len(before.runs):
        return frozenset({"everything"})
    found = {(OF_STUDY if name in OF_STUDY else OF_RUN)[PurePath(name).name] for name in _written(before, now)}
    moved = [new for old, new in zip(before.runs, now.runs, strict=True) if old != new]
    if moved:
        found |= {"totals", "runs", "cost", *(f"card-{now.variants.index(run.variant)}" for run in moved)}
    if any(run.attempts > 1 for run in moved):
        found.add("proofs")
    states = [(run.state, run.attempts, run.reason) for run in before.runs]
    if states != [(run.state, run.attempts, run.reason) for run in now.runs]:
        found |= {"failures", "proofs", "values"}
    if now.ranking is not before.ranking or now.no_ranking != before.no_ranking:
        found |= {"ladder", "verdicts", "values", *(f"card-{place}" for place in range(len(now.variants)))}
    return frozenset(found)


def runs_with_news(before: Snapshot, now: Snapshot) -> frozenset[str]:
    """Names of the runs with new events or new files; all of them where a file speaks of the whole study."""
    old = {run.run: run for run in before.runs}
    written = _written(before, now)
    if any(name in OF_STUDY for name in written):
        return frozenset(run.run for run in now.runs)
    return frozenset(
        {run.run for run in now.runs if old.get(run.run) != run} | {PurePath(name).parts[0] for name in written}
    )


def _written(before: Snapshot, now: Snapshot) -> set[str]:
    return {name for name in before.kept.keys() | now.kept.keys() if before.kept.get(name) != now.kept.get(name)}
