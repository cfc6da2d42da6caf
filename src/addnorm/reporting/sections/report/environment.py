"""Environment of a study's runs: versions, devices and threads, with differences between runs."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View

_OF_A_PROCESS = frozenset({"pid"})


class EnvironmentSection(Section):
    """The environment of all runs."""

    order = 190
    absence = "record"
    in_report = "end"

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        return {"environment": environment(snapshot)}


def environment(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Every value of each fact in the `env.json` of the newest attempts, with its number of runs; none of a run not started."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in snapshot.runs:
        for name, value in content_of(snapshot, f"{run.run}/env.json").items():
            if name not in _OF_A_PROCESS:
                counts[name][str(value)] += 1
    return {name: dict(values) for name, values in counts.items()}
