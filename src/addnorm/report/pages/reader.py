"""From a study's folder to snapshots, again and again, reading only what changed.

A look asks the system for four facts per run (size and times of its events, its folder's and its lock's time) and reads a
run's files only where one of them moved. A worker's death moves none: its lock is dropped by the kernel, so the locks
of runs that were alive are tried each time. A thousand runs cost some ten thousandths of a second per look, so a page can look
several times a second beside a training that needs the processor.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.lab.results import added_later, ranking, result
from addnorm.lab.statistics import Ranking, Result
from addnorm.report.pages.snapshot import RunView, Snapshot
from addnorm.store import Damaged, Run, RunStatus, Study

_Facts = tuple[tuple[int, int], ...]


class Reader:
    """Looks at one study's folder. Not for several threads at once.

    Args:
        folder: the study's folder.

    Raises:
        InputError, Damaged: as `Study`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = Study(folder)
        self._plan_facts = _facts(folder / "study.json")
        self._seen: dict[str, tuple[_Facts, RunView, Result]] = {}
        self._ranked: tuple[tuple[Result | tuple[str, int], ...], Ranking | None, str | None] | None = None
        self._newest: Snapshot | None = None

    def look(self, *, rank: Callable[["Reader"], bool] = lambda reader: True) -> Snapshot:
        """The study as it is now.

        Args:
            rank: whether the ranking is brought up to date too, which takes longer than all else.

        Raises:
            InputError, Damaged: the study is gone, or its `study.json` damaged.
        """
        facts = _facts(self.folder / "study.json")
        if facts != self._plan_facts:
            self.study, self._plan_facts = Study(self.folder), facts
            self._newest, self._ranked = None, None
        later = added_later(self.study)
        views = tuple(self._run(run, later) for run in self.study.runs())
        if rank(self):
            self._rank()
        found, reason = (self._ranked[1], self._ranked[2]) if self._ranked is not None else (None, None)
        before = self._newest
        if before is not None and before.runs == views and before.ranking is found and before.no_ranking == reason:
            return before
        self._newest = Snapshot(path=self.folder, plan=self.study.plan, runs=views, ranking=found, no_ranking=reason)
        return self._newest

    @property
    def is_ranking_old(self) -> bool:
        """Whether a run has ended, or come back from its end, since the ranking was made."""
        return self._ranked is None or self._ranked[0] != _what_ranks(self._results())

    def _results(self) -> tuple[Result, ...]:
        return tuple(self._seen[run.name][2] for run in self.study.runs())

    def _rank(self) -> None:
        results = self._results()
        what = _what_ranks(results)
        if self._ranked is not None and self._ranked[0] == what:
            return
        try:
            self._ranked = (what, ranking(self.study, found=results), None)
        except (InputError, Damaged) as error:
            self._ranked = (what, None, str(error))

    def _run(self, run: Run, later: frozenset[str]) -> RunView:
        facts = _facts(run.events_path, run.path, run.path / "lock")
        before = self._seen.get(run.name)
        if before is not None and before[0] == facts and before[1].state != "running":
            return before[1]
        if before is not None and before[0] == facts and run.is_held():
            return before[1]
        status, ending = run.status(), run.ending()
        view = _view(run, status, ending)
        ranked = result(self.study, status, ending, later)
        self._seen[run.name] = (facts, view, ranked)
        return view


def _what_ranks(results: tuple[Result, ...]) -> tuple[Result | tuple[str, int], ...]:
    """The part of the results that a ranking depends on: those that ended, and which others there are."""
    return tuple(result if result.ended else (result.variant, result.seed) for result in results)


def _view(run: Run, status: RunStatus, ending: dict[str, Any] | None) -> RunView:
    try:
        last, train = run.last_event() or {}, run.newest("train") or {}
    except Damaged:  # the status is `blocked` for it and says why
        last, train = {}, {}
    speed = _number(train.get("tokens_per_s"))
    per_step = _tokens_per_step(run.spec.get("spec"))
    peak = (ending or {}).get("peak_bytes")
    return RunView(
        run=status["run"],
        variant=status["variant"],
        seed=status["seed"],
        state=status["state"],
        step=status["step"],
        steps=status["steps"],
        loss=status["loss"],
        accuracy=status["accuracy"],
        perplexity=status["perplexity"],
        attempts=status["attempts"],
        reason=status["reason"],
        newest_time=_number(last.get("time")),
        tokens_per_s=speed,
        steps_per_s=speed / per_step if speed and per_step else None,
        ended_time=_number((ending or {}).get("time")),
        peak_bytes=peak if isinstance(peak, int) else None,
    )


def _tokens_per_step(spec: Any) -> int | None:
    try:
        return int(spec["training"]["batch"] * spec["training"]["seq"])
    except (KeyError, TypeError):
        return None  # a plan that was not made by `addnorm run`


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _facts(*paths: Path) -> _Facts:
    found = []
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            found.append((-1, -1))
        else:
            found.append((seen.st_size, seen.st_mtime_ns))
    return tuple(found)
