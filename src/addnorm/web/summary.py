"""Summaries for the page of all studies: of one study, and of two side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.spec import differing
from addnorm.reporting.sections.answer import Answer, answer
from addnorm.reporting.sections.totals import Totals, totals
from addnorm.reporting.snapshot import Snapshot
from addnorm.store import Damaged
from addnorm.store.notes import notes

_MOST_SETTINGS = 40


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One study in a few lines."""

    name: str
    """Path within the folder of all studies."""
    key: str
    study: str
    answer: Answer
    totals: Totals
    tags: tuple[str, ...]

    @property
    def is_at_work(self) -> bool:
        return any(state == "running" and count for state, count in self.totals.counts)

    @property
    def text(self) -> str:
        """Text that a search looks at."""
        return f"{self.name} {self.study} {self.answer.question} {' '.join(self.tags)}"


def summary(name: str, key: str, snapshot: Snapshot) -> Summary:
    """A study as it stands."""
    try:
        tags = tuple(tag for _, tag in notes(snapshot.path).of(None).tags)
    except Damaged:  # the study's own page says so
        tags = ()
    return Summary(
        name=name, key=key, study=snapshot.study, answer=answer(snapshot), totals=totals(snapshot), tags=tags
    )


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """A reason why losses of two studies cannot be compared."""

    field: str
    """Key of the phrase that names what differs, or the path of a setting."""
    first: str
    second: str


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """One model of either study on the common scale."""

    side: int
    """0 or 1."""
    variant: str
    is_reference: bool
    seeds: int
    mean: float
    reach: float | None
    """Half of its interval; None without one."""
    box: tuple[float, float, float]
    """Ends of the interval and the mean on the scale from 0 to 100."""


def obstacles(first: Snapshot, second: Snapshot) -> list[Obstacle]:
    """Reasons why losses of the two studies cannot be compared; none if they mean the same."""
    both = (first, second)
    problems = []
    for field, key in (("compare.held_out", "data_hash"), ("compare.tokenizer", "tokenizer_hash")):
        values = [str(each.plan.get(key) or "–") for each in both]
        if values[0] != values[1] or "–" in values:
            problems.append(Obstacle(field=field, first=values[0][:12], second=values[1][:12]))
    for path in ("model.objective", "training.seq", "training.eval_sequences", "training.final_sequences"):
        used = [", ".join(sorted({_setting(each.spec(name), path) for name in each.variants})) for each in both]
        if used[0] != used[1]:
            problems.append(Obstacle(field=path, first=used[0], second=used[1]))
    has = [each.ranking is not None and any(row.mean is not None for row in each.ranking.variants) for each in both]
    if not all(has):
        words = ["compare.has_results" if each else "compare.none_finished" for each in has]
        problems.append(Obstacle(field="compare.no_result", first=words[0], second=words[1]))
    return problems


def compared(first: Snapshot, second: Snapshot) -> list[ComparedModel]:
    """The models of both studies with a result, least loss first."""
    rows = [
        (side, row)
        for side, snapshot in enumerate((first, second))
        if snapshot.ranking is not None
        for row in snapshot.ranking.variants
        if row.mean is not None
    ]
    ends = [end for _, row in rows for end in (*(row.interval or ()), row.mean) if end is not None]
    low, width = min(ends), (max(ends) - min(ends)) or 1.0

    def place(value: float) -> float:
        return 2 + 96 * (value - low) / width

    sides = (first, second)
    return [
        ComparedModel(
            side=side,
            variant=row.variant,
            is_reference=row.variant in sides[side].references,
            seeds=row.seeds,
            mean=row.mean,
            reach=(row.interval[1] - row.interval[0]) / 2 if row.interval else None,
            box=(place((row.interval or (row.mean,))[0]), place((row.interval or (row.mean,))[-1]), place(row.mean)),
        )
        for side, row in sorted(rows, key=lambda each: each[1].mean or 0.0)
        if row.mean is not None
    ]


def settings(first: Snapshot, second: Snapshot) -> Mapping[str, tuple[str, str]]:
    """Settings in which the first references of two studies differ: path, and the value of each."""
    specs: dict[str, Mapping[str, Any]] = {}
    for side, snapshot in enumerate((first, second)):
        name = next(iter(snapshot.references or snapshot.variants), "")
        spec = snapshot.spec(name)
        specs[str(side)] = {part: spec[part] for part in ("model", "training", "corpus", "tokenizer") if part in spec}
    by_path = {path: (values["0"], values["1"]) for path, values in differing(specs).items()}
    return dict(list(by_path.items())[:_MOST_SETTINGS])


def _setting(spec: Mapping[str, Any], path: str) -> str:
    at: Any = spec
    for part in path.split("."):
        at = at.get(part) if isinstance(at, Mapping) else None
    return "–" if at is None else str(at)
