"""Where a study's runs ran: versions, devices and threads, with what differed between runs."""

from collections import defaultdict
from dataclasses import dataclass

from addnorm.errors import AddnormError
from addnorm.reporting.pages.contained import contained
from addnorm.reporting.pages.snapshot import Snapshot
from addnorm.store import read_json

_OF_A_PROCESS = frozenset({"pid"})


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One line of the environment."""

    name: str
    values: tuple[tuple[str, int], ...]
    """Every value with its number of runs; more than one where runs differ."""


def environment(snapshot: Snapshot) -> list[Fact]:
    """What the newest attempts' env.json say."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in snapshot.runs:
        path = snapshot.path / run.run / "env.json"
        if not contained(snapshot.path, path):
            continue
        try:
            content = read_json(path)
        except AddnormError:
            continue  # a run without it has not started, or its folder was half copied
        for name, value in content.items() if isinstance(content, dict) else ():
            if name not in _OF_A_PROCESS:
                found[name][str(value)] += 1
    return [Fact(name=name, values=tuple(values.items())) for name, values in found.items()]
