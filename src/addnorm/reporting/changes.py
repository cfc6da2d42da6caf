"""Differences between two snapshots: sections that changed, and runs with new events or files."""

from collections.abc import Iterable
from pathlib import PurePath

from addnorm.reporting.section import Section, Trigger
from addnorm.reporting.sections import pages, sections, study_files
from addnorm.reporting.snapshot import Snapshot

EVERYTHING = "everything"
"""Stands for all sections: the page has to be loaded again."""


# From two snapshots to names of sections, without rendering anything. The rule is one-sided: a section may be named
# in vain (it is rendered and the page replaces it by the same HTML), but one that changed must be named, or open
# pages show old numbers next to new ones until somebody reloads.
#
# Runs move often (steps, losses), so that they are compared as a whole and reduced to triggers. `states` is a trigger
# of its own because failures and proofs need not follow every step. The ranking arrives later than the runs (see
# `addnorm.web.live`), as a change of its own.
def changed_sections(before: Snapshot, now: Snapshot) -> frozenset[str]:
    """Names of the sections that show something else now than before; `PART-N` for the part of one model."""
    if now is before:
        return frozenset()
    if now.models != before.models or len(now.all_runs) != len(before.all_runs):
        # Models or runs were added. Sections number models by place, and the navigation itself may change, so that no
        # exchange of sections leads to the new page.
        return frozenset({EVERYTHING})
    moved = [new for old, new in zip(before.all_runs, now.all_runs, strict=True) if old != new]
    triggers: set[Trigger] = {"runs"} if moved else set()
    if any(run.attempts > 1 for run in moved):
        triggers.add("resumes")
    states = [(run.state, run.attempts, run.reason) for run in before.all_runs]
    if states != [(run.state, run.attempts, run.reason) for run in now.all_runs]:
        triggers.add("states")
    places = {now.variants.index(run.variant) for run in moved if run.variant in now.variants}
    if now.ranking is not before.ranking or now.no_ranking != before.no_ranking:
        triggers.add("ranking")
        # A new ranking may move every card, also those whose runs have not changed.
        places = set(range(len(now.variants)))
    if now.fault != before.fault:
        triggers.add("fault")
    written = _written(before, now)
    changed: set[str] = set()
    for name, section in sections().items():
        if now.source not in section.sources:
            continue
        if _follows(section, triggers, before, now) or _reads(section, written):
            changed |= {name} if section.part is None else {f"{section.part}-{place}" for place in places}
    return frozenset(changed)


def shown_on(page: str, changed: Iterable[str]) -> list[str]:
    """Those of the changed sections and parts that a page shows, sorted."""
    names = pages()[page]
    parts = {sections()[name].part for name in names} - {None}
    return sorted(name for name in changed if name in names or name.rpartition("-")[0] in parts)


def runs_with_news(before: Snapshot, now: Snapshot) -> frozenset[str]:
    """Folders of runs with new events or new files, and of checkpoints with new files; all runs if a file of the whole study is
    new."""
    old = {run.run: run for run in before.runs}
    written = _written(before, now)
    # A file of the whole study (costs, verdicts, notes) concerns every model's page, so that all runs count as news.
    # `_change` of `addnorm.web.app` uses the set to leave pages of other models alone.
    if written & study_files():
        return frozenset(run.run for run in now.runs)
    return frozenset(
        {run.run for run in now.runs if old.get(run.run) != run} | {str(PurePath(name).parent) for name in written}
    )


def _follows(section: type[Section], triggers: set[Trigger], before: Snapshot, now: Snapshot) -> bool:
    """True if the section follows one of the changes and shows anything; nearly all of them always do."""
    if not section.follows & triggers:
        return False
    # A section that shows nothing, before and after, would only replace its "not measured yet" by itself at every
    # step.
    is_always = section.is_measured is Section.is_measured
    return is_always or any(section().is_measured(each, None) for each in (before, now))


def _reads(section: type[Section], written: set[str]) -> bool:
    return any(
        name in section.study_files or (name not in study_files() and PurePath(name).name in section.run_files)
        for name in written
    )


def _written(before: Snapshot, now: Snapshot) -> set[str]:
    return {name for name in before.kept.keys() | now.kept.keys() if before.kept.get(name) != now.kept.get(name)}
