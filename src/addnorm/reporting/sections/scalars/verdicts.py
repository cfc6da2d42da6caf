"""Verdicts of `addnorm explain DIR` on learned scalars, per number and run, from DIR/explain.json."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.reading.study_files import UNREADABLE, content_of
from addnorm.reporting.snapshot import Snapshot

NAME = "explain.json"
VERDICTS = {
    "learned": "learned",
    "decayed": "decayed",
    "open": "open",
    "undriven": "undriven",
    "redundant direction": "redundant",
}
"""Each verdict as `addnorm explain` writes it, and the key of its phrase."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The verdicts of all explained runs."""

    time: float
    """Time of the computation, in seconds since 1970."""
    verdicts: Mapping[tuple[str, str], tuple[tuple[str, int], ...]]
    """By variant and number: each verdict's key, and how many seeds have it."""
    overall: Mapping[tuple[str, str], str]
    """By variant and number: the key of the verdict over seeds. Files of earlier versions have none."""
    directions: Mapping[str, Sequence[Mapping[str, float]]]
    """By variant: the redundant directions of the seed with the fewest, as the change of their numbers by name."""

    def of(self, variant: str, name: str) -> tuple[tuple[str, int], ...]:
        """The verdicts of the seeds on one number, named as in `scalars.safetensors`."""
        return self.verdicts.get((variant, _bare(name)), ())

    def over(self, variant: str, name: str) -> str | None:
        """Return the verdict over seeds on one number; without one, the verdict that most seeds share; None without any."""
        of_seeds = self.of(variant, name)
        return self.overall.get((variant, _bare(name)), of_seeds[0][0] if of_seeds else None)

    def counts(self, variant: str, names: Sequence[str]) -> tuple[tuple[str, int], ...]:
        """Of several numbers, how many have each verdict over seeds."""
        per_verdict = Counter(self.over(variant, name) for name in names)
        return tuple((key, per_verdict[key]) for key in VERDICTS.values() if per_verdict[key])

    def directions_of(self, variant: str, names: Sequence[str]) -> list[dict[str, float]]:
        """The redundant directions of a variant, whose numbers are named as in `scalars.safetensors`."""
        full = {_bare(name): name for name in names}
        return [
            {full[name]: change for name, change in direction.items()}
            for direction in self.directions.get(variant, ())
            if direction.keys() <= full.keys()
        ]


def explained(snapshot: Snapshot) -> Explained | None:
    """The study's verdicts; None if there are none that this version can read."""
    content = content_of(snapshot, NAME)
    try:
        return _read(content) if content else None
    except UNREADABLE:
        return None


def _read(content: Mapping[str, Any]) -> Explained:
    counts: dict[tuple[str, str], Counter[str]] = {}
    directions: dict[str, list[dict[str, float]]] = {}
    for run in content["runs"]:
        variant = str(run["variant"])
        for scalar in run["scalars"]:
            name = f"{scalar['parameter']}[{','.join(map(str, scalar['index']))}]"
            counts.setdefault((variant, _bare(name)), Counter())[VERDICTS[scalar["verdict"]]] += 1
        of_run = [
            {_bare(name): float(change) for name, change in zip(of["parameters"], of["coefficients"], strict=True)}
            for of in run.get("directions", ())
        ]
        directions[variant] = min(directions.get(variant, of_run), of_run, key=len)
    return Explained(
        time=float(content["time"]),
        verdicts={key: tuple(of.most_common()) for key, of in counts.items()},
        overall={
            (str(row["variant"]), _bare(row["entry"])): VERDICTS[row["verdict"]]
            for row in content.get("spread", ())
            if "verdict" in row
        },
        directions=directions,
    )


def _bare(name: str) -> str:
    """A number's name with indices in one form: `NAME[1,2]`."""
    parameter, _, index = name.partition("[")
    return f"{parameter}[{','.join(re.findall(r'[0-9]+', index))}]"
