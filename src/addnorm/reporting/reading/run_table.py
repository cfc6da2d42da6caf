"""Repeated snapshots of a table of runs that other code writes: a CSV file, a folder of events, a tracker's export.

The table is read again when its files have changed and are at rest. While it cannot be read, the last good state stays, with
what is wrong.
"""

import bisect
import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError, InputError
from addnorm.reporting.snapshot import Facts, RunView, Snapshot, TableSource
from addnorm.statistics import Ranking, Result, kuang_2025, read_published
from addnorm.statistics.run_tables import Source, is_run_table, read_curves
from addnorm.store.questions.source import is_published
from addnorm.store.rank import Choices, RankedTable, rank, rank_table
from addnorm.words import say

_LONGEST_WAIT_S = 2.0
"""Time after which a file that is written all the time is read although it is not at rest."""
_FEWEST_POINTS = 2
"""Of a curve."""
Points = Mapping[str, Sequence[tuple[float, float]]]
"""Steps, ascending, and values by the run's name."""


@dataclass(frozen=True, kw_only=True)
class TableChoices(Choices):
    """Choices about a table, as `addnorm rank` takes them."""

    posterior: bool = False

    @property
    def of_ranking(self) -> dict[str, Any]:
        """Arguments of `addnorm.rank`."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "posterior"}

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the choices that differ from the default."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def words(self) -> tuple[str, ...]:
        """The options of the commands."""
        words: list[str] = []
        for option, values in (
            ("--reference", self.references or ()),
            ("--variant", self.variants),
            ("--exclude", self.exclude),
            ("--metric", tuple(map(_metric_word, self.metric))),
        ):
            for value in values:
                words += [option, value]
        for option, given in (("--margin", self.margin), ("--direction", self.direction), ("--unit", self.unit)):
            if given is not None:
                words += [option, str(given)]
        if self.columns:
            words += [
                "--columns",
                ",".join(f"{name}={column}" for name, column in self.columns.items() if name != column),
            ]
        return (*words, *(["--together"] if self.together else []), *(["--posterior"] if self.posterior else []))


def _metric_word(metric: str | Mapping[str, Any]) -> str:
    if isinstance(metric, str):
        return metric
    return ",".join([str(metric["name"]), *(f"{key}={value}" for key, value in metric.items() if key != "name")])


def is_table(source: Source) -> bool:
    """True for a table of runs, and for printed results."""
    return is_run_table(source) or is_published(Path(source))  # type: ignore[arg-type]


def refuse_choices(path: Path, choices: TableChoices | None) -> None:
    """Refuse choices about a table for anything else.

    Raises:
        InputError: there is one.
    """
    if choices is not None and choices.given:
        raise InputError(
            f"{path}: expected a table of runs where {choices.given[0]} is given, got another path. The page and the report "
            "of a study show the comparisons of its plan; addnorm rank takes other ones."
        )


# A file that another program writes may be caught in the middle of a line: the number 2.41 without its last digit is a number.
# So a changed file is read only when two looks have seen it the same. One that never rests is read after a while all the same,
# and its faults are shown only when they persist.
class TableReader:
    """Peeks at one table. Not for several threads at once.

    Args:
        source: of `addnorm.rank`; a table in memory is read once.
        choices: about it.
    """

    def __init__(self, source: Source, choices: TableChoices | None = None) -> None:
        self._source, self._choices = source, choices or TableChoices()
        self._file = Path(source) if isinstance(source, str | Path) else None
        self.folder = self._file or Path("table")
        self._facts: tuple[Facts, ...] | None = None
        self._waiting: tuple[Facts, ...] | None = None
        self._read_s = 0.0
        self._newest: Snapshot | None = None

    def look(self, *, rank: Callable[[Any], bool] = lambda reader: True) -> Snapshot:
        """The table as it is now, or its last good state with the fault that came since.

        Raises:
            InputError: the table cannot be read, and never could.
        """
        facts = () if self._file is None else _facts(self._file)
        if self._newest is not None:
            if facts == self._facts:
                return self._newest
            is_at_rest = facts == self._waiting
            self._waiting = facts
            if not is_at_rest and time.monotonic() - self._read_s < _LONGEST_WAIT_S:
                return self._newest
        # The facts were taken before the files are read: if they change in between, the next look reads again.
        try:
            snapshot = self._read(facts)
        except (AddnormError, OSError) as error:
            if self._newest is None:
                raise
            snapshot = replace(self._newest, fault=_message(error))
        self._facts, self._read_s, self._newest = facts, time.monotonic(), snapshot
        return snapshot

    @property
    def is_ranking_old(self) -> bool:
        """False: a table is ranked when it is read."""
        return False

    def _read(self, facts: tuple[Facts, ...]) -> Snapshot:
        ranked = _ranked(self._source, self._choices)
        points, no_curves = _points(self._source, self._choices)
        ranking = ranked.ranking
        shown = {row.variant for row in ranking.variants}
        results = [result for result in ranked.runs if result.variant in shown]
        changed = max((when for _, when in facts if when > 0), default=None)
        runs = _views(results, points, None if changed is None else changed / 1e9)
        return Snapshot(
            path=self.folder,
            plan={"study": self.folder.name, "runs": []},
            runs=runs,
            ranking=ranking,
            source="table",
            table=TableSource(
                words=() if self._file is None else (self._file, *self._choices.words()),
                hash=_hash(self._file),
                curves=TableCurves(points),
                no_curves=no_curves,
                measure=ranking.measure,
                posterior=self._choices.posterior,
            ),
        )


class TableCurves:
    """Curves in memory, as `addnorm.store.Index` gives those of a study. A table has one metric: its column.

    Example:
        >>> curves = TableCurves({"base/0": [(0, 4.0), (1, 3.0), (2, 2.0)]})
        >>> curves.thinned("base/0", "eval.loss", first=0, last=1, parts=1)
        [(1, 3.5)]
        >>> curves.neighbours("base/0", "eval.loss", first=0, last=1)
        [(2, 2.0)]
    """

    def __init__(self, points: Points) -> None:
        self._points = points

    def thinned(self, run: str, metric: str, *, first: int, last: int, parts: int) -> list[tuple[int, float]]:
        """Means over at most `parts` bins of equal width between two steps, each at the last step of its bin."""
        width = max(1, -(-(last - first + 1) // parts))
        bins: dict[float, list[tuple[float, float]]] = {}
        for step, value in self._points.get(run, ()):
            if first <= step <= last and math.isfinite(value):
                bins.setdefault((step - first) // width, []).append((step, value))
        return [(_whole(of[-1][0]), sum(value for _, value in of) / len(of)) for of in bins.values()]

    def neighbours(self, run: str, metric: str, *, first: int, last: int) -> list[tuple[int, float]]:
        """The nearest finite values before one step and after another, as far as there are any."""
        points = [point for point in self._points.get(run, ()) if math.isfinite(point[1])]
        steps = [step for step, _ in points]
        before, after = bisect.bisect_left(steps, first), bisect.bisect_right(steps, last)
        near = [*points[max(0, before - 1) : before], *points[after : after + 1]]
        return [(_whole(step), value) for step, value in near]


def _whole(step: float) -> int:
    """The step; a part of an epoch stays what it is."""
    return int(step) if step == int(step) else step  # type: ignore[return-value]


def _ranked(source: Source, choices: TableChoices) -> RankedTable:
    if is_run_table(source):
        # One seed is enough to be shown: its verdicts say what they lack.
        return rank_table(source, choices, fewest_seeds=1)
    path = Path(source)  # type: ignore[arg-type]
    ranking: Ranking = rank(path, **{**choices.of_ranking, "together": False})
    published = read_published(path) if path.suffix == ".json" else kuang_2025()
    return RankedTable(ranking=ranking, runs=published.results)


def _points(source: Source, choices: TableChoices) -> tuple[Points, str | None]:
    """Curves by run, and why there are none."""
    if not is_run_table(source):
        return {}, say("no_curves_printed")
    columns = dict(choices.columns or {})
    if columns.get("seed") == "":
        return {}, say("no_curves_without_seeds")
    first = choices.metrics()[0]
    try:
        read, _, _ = read_curves(source, {**columns, "loss": first.name})
    except InputError as error:  # the ranking was read: what is wrong concerns the steps alone
        return {}, _message(error)
    curves = {
        _name(variant, seed): sorted(curve.items()) for variant, seeds in read.items() for seed, curve in seeds.items()
    }
    if all(len(curve) < _FEWEST_POINTS for curve in curves.values()):
        return {}, say("no_curves_one_row")
    return curves, None


def _views(results: Sequence[Result], points: Points, changed: float | None) -> tuple[RunView, ...]:
    last = {name: curve[-1][0] for name, curve in points.items() if curve}
    longest: dict[str, float] = {}
    for result in results:
        step = last.get(_name(result.variant, result.seed), 0.0)
        longest[result.variant] = max(step, longest.get(result.variant, 0.0))
    return tuple(
        RunView(
            run=result.name,
            variant=result.variant,
            seed=result.seed,
            state=result.state,  # type: ignore[arg-type]
            step=math.ceil(last.get(_name(result.variant, result.seed), 0.0)),
            steps=math.ceil(longest[result.variant]),
            loss=result.loss,
            accuracy=result.accuracy,
            perplexity=result.perplexity,
            reason=result.reason,
            newest_time=changed,
        )
        for result in results
    )


def _name(variant: str, seed: int) -> str:
    """Name of a run of a table, as `Result.name` gives it."""
    return f"{variant}/{seed}"


def _message(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, AddnormError) and error.args else str(error)


def _hash(path: Path | None) -> str | None:
    if path is None or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _facts(path: Path) -> tuple[Facts, ...]:
    """Size and time of the file, or of all files of the folder; of a database also what is not yet in it."""
    seen: list[Facts] = []
    places = sorted(path.rglob("*")) if path.is_dir() else [path, path.with_name(f"{path.name}-wal")]
    for place in places:
        try:
            facts = os.stat(place)
        except OSError:
            continue
        seen.append((facts.st_size, facts.st_mtime_ns))
    return tuple(seen)
