"""One run's log, events and use of its machine: their newest part, an earlier one, or what contains some words."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.run_log import MOST_EVENTS, MOST_LINES, log_end, log_search, newest_events
from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import LOG_PAGE, View
from addnorm.store import RunFolder


class LogSection(Section):
    """The log of a run."""

    order = 65
    pages = (LOG_PAGE,)
    in_report = None
    follows = frozenset({"runs"})
    run_files = ("log.txt",)

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        run = next(run for run in snapshot.all_runs if run.run == view.log.run)
        folder, query = RunFolder(snapshot.path / run.run), view.listing.query
        has_log = contained(snapshot.path, folder.log_path)
        path = folder.log_path if has_log else folder.path / "no log"
        has_events = contained(snapshot.path, folder.events_path)
        return {
            "run": run,
            "has_model": run.variant in snapshot.variants,
            "query": query,
            "until": view.log.until,
            "log": log_search(path, query) if query else log_end(path, view.log.until),
            "is_outside": not has_log and folder.log_path.exists(),
            "events": newest_events(folder.events_path, query) if has_events else (),
            "most_lines": MOST_LINES,
            "most_events": MOST_EVENTS,
        }
