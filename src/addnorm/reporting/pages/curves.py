"""Training curves: any set of models, per seed or as mean and band, thinned to what a screen can show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from addnorm.errors import InputError
from addnorm.reporting.pages.lines import dash
from addnorm.reporting.pages.snapshot import RunView, Snapshot
from addnorm.store import Damaged, Index

Mode = Literal["mean", "seeds"]
METRICS = (
    "train.loss", "eval.loss", "eval.accuracy", "eval.perplexity", "train.grad_norm", "train.learning_rate",
    "train.tokens_per_s",
)  # fmt: skip
"""What may be drawn."""
FIRST_SHOWN = 8
"""Models that are drawn before anybody chose."""
PARTS = 300
"""Points per curve at most."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a visitor asked to see."""

    metric: str = "train.loss"
    mode: Mode = "mean"
    variants: tuple[str, ...] = ()
    log: Literal["linear", "log"] = "linear"
    first: int = 0
    last: int | None = None
    """None for the end."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"no curve {self.metric!r}. Known: {', '.join(METRICS)}.")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line, and its band where it has one."""

    label: str
    variant: str
    style: int
    """The variant's place in the study: the same colour wherever the variant is drawn."""
    seed: int | None
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    """Least value of any seed; empty where there is no band."""
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Lines to draw."""

    selection: Selection
    series: tuple[Series, ...]
    last_step: int
    steps_per_point: int
    """Length of the stretches whose means are drawn; 1 if every value is drawn by itself."""

    def to_json(self) -> dict[str, Any]:
        """What the page's script draws, and the table behind it."""
        steps, lines = rows(self)
        return {
            "table": {"steps": steps, "rows": [{"label": label, "values": values} for label, values in lines]},
            "metric": self.selection.metric,
            "mode": self.selection.mode,
            "log": self.selection.log,
            "lastStep": self.last_step,
            "stepsPerPoint": self.steps_per_point,
            "series": [
                {
                    "label": line.label,
                    "variant": line.variant,
                    "style": line.style,
                    "dash": dash(line.style),
                    "seed": line.seed,
                    "steps": line.steps,
                    "values": line.values,
                    "low": line.low,
                    "high": line.high,
                }
                for line in self.series
            ],
        }


def chosen(snapshot: Snapshot, selection: Selection) -> Selection:
    """The selection with its models settled: those asked for that exist, else the references and the best ranked."""
    known = tuple(name for name in snapshot.variants if name in selection.variants)
    if known:
        return replace(selection, variants=known)
    started = [name for name in snapshot.variants if any(run.step > 0 for run in snapshot.of(name))]
    best = [row.variant for row in snapshot.ranking.variants] if snapshot.ranking is not None else started
    first = [name for name in dict.fromkeys([*snapshot.references, *best, *started]) if name in started][:FIRST_SHOWN]
    return replace(selection, variants=tuple(name for name in snapshot.variants if name in first))


def curves(snapshot: Snapshot, selection: Selection) -> Curves:
    """Read what the selection asks for."""
    selection = chosen(snapshot, selection)
    runs = [run for name in selection.variants for run in snapshot.of(name)]
    longest = max((run.steps for run in runs), default=0)
    last = longest if selection.last is None else min(selection.last, longest)
    first = max(0, min(selection.first, last))
    index = Index(snapshot.path)
    found: list[Series] = []
    for name in selection.variants:
        lines = [_line(index, run, selection.metric, first, last, snapshot) for run in snapshot.of(name)]
        lines = [line for line in lines if line.steps]
        found += lines if selection.mode == "seeds" else _mean(name, lines)
    return Curves(
        selection=selection,
        series=tuple(found),
        last_step=longest,
        steps_per_point=max(1, math.ceil((last - first + 1) / PARTS)),
    )


def _line(index: Index, run: RunView, metric: str, first: int, last: int, snapshot: Snapshot) -> Series:
    try:
        points = index.thinned(run.run, metric, first=first, last=last, parts=PARTS) if run.step > 0 else []
    except Damaged:  # the run is shown as blocked, with this very reason
        points = []
    return Series(
        label=f"{run.variant} · {run.seed}",
        variant=run.variant,
        style=snapshot.variants.index(run.variant),
        seed=run.seed,
        steps=tuple(step for step, _ in points),
        values=tuple(value for _, value in points),
        low=(),
        high=(),
    )


def _mean(variant: str, lines: Sequence[Series]) -> list[Series]:
    """Mean, least and largest over the seeds that have reached each step."""
    if not lines:
        return []
    tables = [dict(zip(line.steps, line.values, strict=True)) for line in lines]
    steps = sorted(set().union(*tables))
    columns = [[table[step] for table in tables if step in table] for step in steps]
    return [
        Series(
            label=variant,
            variant=variant,
            style=lines[0].style,
            seed=None,
            steps=tuple(steps),
            values=tuple(sum(column) / len(column) for column in columns),
            low=tuple(map(min, columns)),
            high=tuple(map(max, columns)),
        )
    ]


def rows(found: Curves, count: int = 8) -> tuple[tuple[int, ...], tuple[tuple[str, tuple[float | None, ...]], ...]]:
    """The table behind the chart: up to `count` steps, and every line's value at the last point up to each."""
    reached = sorted({step for line in found.series for step in line.steps})
    if not reached:
        return (), ()
    picked = tuple(dict.fromkeys(reached[round(i * (len(reached) - 1) / (count - 1))] for i in range(count)))
    return picked, tuple((line.label, tuple(_at(line, step) for step in picked)) for line in found.series)


def _at(line: Series, step: int) -> float | None:
    if not line.steps or step > line.steps[-1]:
        return None
    return next((v for s, v in zip(reversed(line.steps), reversed(line.values), strict=True) if s <= step), None)
