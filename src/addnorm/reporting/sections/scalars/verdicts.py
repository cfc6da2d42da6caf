"""Verdicts of `addnorm explain DIR` on learned scalars, per number and run, from DIR/explain.json."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.reading.study_files import UNREADABLE, content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "explain.json"
VERDICTS = {"learned": "learned", "decayed": "decayed", "undriven": "undriven", "redundant direction": "redundant"}
"""Each verdict as `addnorm explain` writes it, and the key of its phrase."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The verdicts of all explained runs."""

    time: float
    """Time of the computation, in seconds since 1970."""
    verdicts: Mapping[tuple[str, str], tuple[tuple[str, int], ...]]
    """By variant and number: each verdict's key, and how many seeds have it."""

    directions: Mapping[str, Sequence[Sequence[frozenset[str]]]]
    """By variant, of each seed: the numbers of each redundant direction."""

    def redundant(self, variant: str, names: Sequence[str]) -> int:
        """Redundant directions within several numbers that every seed has."""
        own = frozenset(map(_bare, names))
        return min((sum(of <= own for of in seed) for seed in self.directions.get(variant, ())), default=0)

    def of(self, variant: str, name: str) -> tuple[tuple[str, int], ...]:
        """The verdicts on one number, named as in `scalars.safetensors`."""
        return self.verdicts.get((variant, _bare(name)), ())

    def counts(self, variant: str, names: Sequence[str]) -> tuple[tuple[str, int], ...]:
        """Of several numbers, how many have each verdict in most of their seeds."""
        found = Counter(verdicts[0][0] for name in names if (verdicts := self.of(variant, name)))
        return tuple((key, found[key]) for key in VERDICTS.values() if found[key])


def explained(snapshot: Snapshot) -> Explained | None:
    """The study's verdicts; None if there are none that this version can read."""
    content = content_of(snapshot, NAME)
    try:
        return _read(content) if content else None
    except UNREADABLE:
        return None


def _read(content: Mapping[str, Any]) -> Explained:
    found: dict[tuple[str, str], Counter[str]] = {}
    for run in content["runs"]:
        for scalar in run["scalars"]:
            name = f"{scalar['parameter']}[{','.join(map(str, scalar['index']))}]"
            found.setdefault((str(run["variant"]), _bare(name)), Counter())[VERDICTS[scalar["verdict"]]] += 1
    directions: dict[str, list[list[frozenset[str]]]] = {}
    for run in content["runs"]:
        of_run = [frozenset(map(_bare, each["parameters"])) for each in run.get("directions", ())]
        directions.setdefault(str(run["variant"]), []).append(of_run)
    return Explained(
        time=float(content["time"]),
        verdicts={key: tuple(of.most_common()) for key, of in found.items()},
        directions=directions,
    )


def _bare(name: str) -> str:
    """A number's name with indices in one form: `NAME[1,2]`."""
    parameter, _, index = name.partition("[")
    return f"{parameter}[{','.join(re.findall(r'[0-9]+', index))}]"
