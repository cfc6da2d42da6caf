"""Repeated snapshots of a study's folder; only changed files are read.

For each run, the reader asks the system for the size and time of the events file and for the times of the folder and of the
lock, and reads the run's files only if one of these changed. A file that a command writes into a run's folder arrives by a
rename, which changes the folder's time. A worker that is killed changes nothing, but the kernel releases its lock; so the locks
of running runs are tried each time. A thousand runs take a few milliseconds, so that a page can be updated several times a
second during a training that needs the processor.
"""

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.reporting.reading.run_table import TableChoices, TableReader, is_table, refuse_choices
from addnorm.reporting.reading.study_files import contained
from addnorm.reporting.sections import run_files, study_files
from addnorm.reporting.snapshot import Facts, RunView, Snapshot
from addnorm.statistics import Ranking, Result
from addnorm.statistics.run_tables import Source
from addnorm.statistics.run_tables.records import is_in_memory
from addnorm.store import Damaged, RunFolder, RunStatus, StudyFolder, read_json
from addnorm.store.events import first_event
from addnorm.store.measured import MEASURED, measured_names
from addnorm.store.result import result
from addnorm.store.results import added_later, ranking
from addnorm.store.tuning import tuning
from addnorm.words import Sentence, command_line, listed, say

_DATA = "data/dataset.json"
_ABSENT: Facts = (-1, -1)


def is_site(folder: Path) -> bool:
    """True for a folder with a site of its own: a study's, one of measured checkpoints, or a checkpoint, which is refused."""
    return (folder / "study.json").is_file() or bool(measured_names(folder)) or (folder / "config.json").is_file()


def reader_of(source: Source, table: TableChoices | None = None) -> "FolderReader":
    """The reader of a study's folder, of one with measured checkpoints, or of a table of runs.

    Args:
        source: a folder, or a table, also one in memory.
        table: choices about a table.

    Raises:
        InputError, Damaged: as `StudyFolder`, for a folder without either; or choices about something that is no table.
    """
    if is_in_memory(source):
        return TableReader(source, table)
    folder = Path(source)  # type: ignore[arg-type]
    if not is_site(folder) and (folder.is_file() or is_table(folder)):
        return TableReader(folder, table)
    refuse_choices(folder, table)
    if not (folder / "study.json").is_file() and measured_names(folder):
        return CheckpointsReader(folder)
    if (folder / "config.json").is_file() and not (folder / "study.json").exists():
        raise InputError(
            f"{folder}: expected the folder of a study or of measured checkpoints, got a checkpoint. Measure it first: "
            f"{command_line('addnorm', 'inspect', folder, '--text', 'FILE', '--to', 'DIR')}  Then give DIR."
        )
    return Reader(folder)


class CheckpointsReader:
    """Peeks at a folder of measured checkpoints without a study.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._newest: Snapshot | None = None

    def look(self, *, rank: Callable[["Reader"], bool] = lambda reader: False) -> Snapshot:
        """The checkpoints as they are now; there is nothing to rank."""
        names, kept = _measured(self.folder, frozenset())
        before = self._newest
        if before is not None and before.checkpoints == names and before.kept == kept:
            return before
        self._newest = Snapshot(
            path=self.folder,
            plan={"study": self.folder.resolve().name, "runs": []},
            runs=(),
            kept=kept,
            checkpoints=names,
            source="checkpoints",
        )
        return self._newest

    @property
    def is_ranking_old(self) -> bool:
        """False: there is no ranking."""
        return False


# Three caches, each with the one condition under which it is still true:
#
# - `_seen`, per run: size and time of its events file, times of its folder and of its lock file. A run's status
#   follows from these files and from whether a worker holds the lock, so that equal facts and the same answer of the
#   lock mean the same run. Times are in nanoseconds and are compared together with the size: two appends within one
#   tick of the clock still change the size.
# - `_ranked`: the results that entered the ranking, without the progress of runs that have not ended. A ranking of
#   many variants takes seconds; it may not be repeated for each logged step.
# - `_newest`: the snapshot itself. If nothing changed, the *same object* is returned. Everything above relies on
#   this: `Live` and `changed_sections` compare snapshots by identity before they compare anything else, and
#   `cached_property` values of a snapshot (variants, short names, settings that differ) stay computed.
#
# What would break: a cache keyed by the clock, or one that is cleared on every read, would make each of the three
# reads per second cost what a full read of a thousand runs costs, next to a training that needs the processor.
class Reader:
    """Peeks at one study's folder. Not for several threads at once.

    Args:
        folder: the study's folder.

    Raises:
        InputError, Damaged: as `StudyFolder`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = StudyFolder(folder)
        self._plan_facts = _facts(folder / "study.json")
        self._seen: dict[str, _Seen] = {}
        self._ranked: tuple[tuple[Result | tuple[str, int], ...], Ranking | None, Sentence | None] | None = None
        self._newest: Snapshot | None = None
        self._text: int | None = None

    def look(self, *, rank: Callable[["Reader"], bool] = lambda reader: True) -> Snapshot:
        """The study as it is now.

        Args:
            rank: whether the ranking is updated too, which takes longest.

        Raises:
            InputError, Damaged: the study is gone, or its `study.json` damaged.
        """
        facts = _facts(self.folder / "study.json")
        # The plan itself can change: seeds are added by an extension. All runs may then have a new meaning (`later`,
        # tuning), so that nothing is kept but `_seen`, whose runs are still read by their own facts.
        if facts != self._plan_facts:
            self.study, self._plan_facts = StudyFolder(self.folder), facts
            self._newest, self._ranked = None, None
        later = added_later(self.study)
        seen = [self._run(run, later) for run in self.study.all_runs()]
        views = tuple(of.view for of in seen)
        kept = _present(self.folder, sorted(study_files()))
        for of in seen:
            kept |= of.kept
        checkpoints, of_checkpoints = _measured(self.folder, {view.variant for view in views})
        kept |= of_checkpoints
        if rank(self):
            self._rank()
        newest_ranking, reason = (self._ranked[1], self._ranked[2]) if self._ranked is not None else (None, None)
        # Rankings are compared by identity: `_rank` returns the same object unless a result changed, and comparing
        # two of 300 variants field by field would cost more than it saves. Run views are small and compared by value,
        # since they are made anew.
        before = self._newest
        same = before is not None and before.ranking is newest_ranking and before.no_ranking == reason
        if (
            before is not None
            and same
            and (before.all_runs, before.checkpoints, before.kept) == (views, checkpoints, kept)
        ):
            return before
        tuned = len(self.study.tuning_runs())
        self._newest = Snapshot(
            path=self.folder,
            plan=self.study.plan,
            runs=views[tuned:],
            tuning_runs=views[:tuned],
            tuning=tuning(self.study, self._tuned()),
            ranking=newest_ranking,
            no_ranking=reason,
            train_tokens=self._train_tokens(),
            kept=kept,
            checkpoints=checkpoints,
        )
        return self._newest

    @property
    def is_ranking_old(self) -> bool:
        """True if a run has ended, or was started again, since the ranking was computed."""
        return self._ranked is None or self._ranked[0] != _what_ranks((*self._tuned(), *self._results()))

    def _train_tokens(self) -> int | None:
        """Of the study's own data set, which is written once, before its plan."""
        if self._text is None:
            self._text = _train_tokens(self.folder)
        return self._text

    def _results(self) -> tuple[Result, ...]:
        return tuple(self._seen[run.name].result for run in self.study.runs())

    def _tuned(self) -> tuple[Result, ...]:
        return tuple(self._seen[run.name].result for run in self.study.tuning_runs())

    def _rank(self) -> None:
        results, tuned = self._results(), self._tuned()
        what = _what_ranks((*tuned, *results))
        if self._ranked is not None and self._ranked[0] == what:
            return
        try:
            self._ranked = (what, ranking(self.study, known=results, tuned=tuned), None)
        except (InputError, Damaged) as error:
            self._ranked = (what, None, _why_not(error, self.study))

    def _run(self, run: RunFolder, later: frozenset[str]) -> "_Seen":
        before = self._seen.get(run.name)
        is_at_work = before is not None and before.view.state == "running"
        # A running worker writes its log more often than events, and its page may be open. A file that grows does not
        # change its folder's time, so that the log of a run at work is looked at itself; those of ended runs no
        # longer grow.
        # A log that grows changes nothing else.
        facts = _facts(run.events_path, run.path, run.path / "lock", *([run.log_path] if is_at_work else ()))
        if before is not None and before.facts == facts and (before.view.state != "running" or run.is_held()):
            return before
        # The facts were taken before the files are read. If a worker writes in between, the facts are too old, never
        # too new: the next read sees a difference and repeats the work. The other order would lose that write until
        # the next one.
        status, ending = run.status(), run.ending()
        began = None if before is None else before.view.began_time
        self._seen[run.name] = _Seen(
            facts=facts,
            view=_view(run, status, ending, began),
            result=result(
                self.study, status, ending, later, run.newest("eval") if status.state == "finished" else None
            ),
            kept=_present(self.folder, [f"{run.name}/{name}" for name in sorted(run_files())]),
        )
        return self._seen[run.name]


FolderReader = Reader | CheckpointsReader | TableReader
"""Any of them: `look` gives the folder as it is now, and `is_ranking_old` says whether it would compute another ranking."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """One run as last read, and the facts that show whether it has changed since."""

    facts: tuple[Facts, ...]
    view: RunView
    result: Result
    kept: dict[str, Facts]


def _train_tokens(folder: Path) -> int | None:
    path = folder / _DATA
    try:
        content = read_json(path) if contained(folder, path) else {}
        return int(content["train"]["tokens"]) or None
    except (Damaged, KeyError, TypeError, ValueError):
        return None  # made by hand or copied without its data


def _what_ranks(results: tuple[Result, ...]) -> tuple[Result | tuple[str, int], ...]:
    """The part of the results that a ranking depends on: the ended runs, and the names of the others."""
    return tuple(result if result.ended else (result.variant, result.seed) for result in results)


def _why_not(error: InputError | Damaged, study: StudyFolder) -> Sentence:
    if isinstance(error.args[0], Sentence):
        return error.args[0]
    variants = {run.spec["variant"] for run in study.runs()}
    missing = [name for name in study.references if name not in variants]
    if missing:
        return say("no_such_reference", names=listed("comma", missing))
    return say("cannot_rank", reason=str(error))


def _view(run: RunFolder, status: RunStatus, ending: dict[str, Any] | None, began: float | None) -> RunView:
    try:
        last, train = run.last_event() or {}, run.newest("train") or {}
        if began is None:  # a first event stays the first
            began = _number((first_event(run.events_path) or {}).get("time"))
    # One damaged file may not take a page of a hundred runs down: its run is shown as blocked, with the reason, and
    # its numbers are absent.
    except Damaged:  # the status is `blocked` for it and says why
        last, train = {}, {}
    speed = _number(train.get("tokens_per_s"))
    per_step = _tokens_per_step(run.spec.get("spec"))
    peak = (ending or {}).get("peak_bytes")
    holder = run.newest_holder() if status.state == "running" else None
    return RunView(
        **vars(status),
        newest_time=_number(last.get("time")),
        tokens_per_s=speed,
        tokens_per_step=per_step,
        steps_per_s=speed / per_step if speed and per_step else None,
        began_time=began,
        ended_time=_number((ending or {}).get("time")),
        peak_bytes=peak if isinstance(peak, int) else None,
        host=holder.host if holder is not None else None,
        uses=_uses(train.get("uses")),
    )


def _tokens_per_step(spec: Any) -> int | None:
    try:
        return int(spec["training"]["batch"] * spec["training"]["seq"])
    except (KeyError, TypeError):
        return None  # a plan that was not made by `addnorm run`


def _uses(recorded: Any) -> dict[str, float]:
    if not isinstance(recorded, dict):
        return {}  # an event of an earlier addnorm
    return {name: float(value) for name, value in recorded.items() if isinstance(value, int | float)}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _measured(folder: Path, variants: Collection[str]) -> tuple[tuple[str, ...], dict[str, Facts]]:
    """Names of the measured checkpoints, and facts of their files. A name is a variant's if the study has one of that name,
    which `inspect --to` refuses."""
    names = tuple(name for name in measured_names(folder) if name not in variants)
    return names, _present(folder, [f"{MEASURED}/{name}/{file}" for name in names for file in sorted(run_files())])


def _present(folder: Path, names: Iterable[str]) -> dict[str, Facts]:
    """Facts of those of the folder's files that are there."""
    facts_of = {name: _facts(folder / name)[0] for name in names}
    return {name: facts for name, facts in facts_of.items() if facts != _ABSENT}


def _facts(*paths: Path) -> tuple[Facts, ...]:
    of_paths: list[Facts] = []
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            of_paths.append(_ABSENT)
        else:
            of_paths.append((seen.st_size, seen.st_mtime_ns))
    return tuple(of_paths)
