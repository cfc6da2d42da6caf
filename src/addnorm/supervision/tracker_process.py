"""The process of one tracker: `python -m addnorm.supervision.tracker_process KIND DIR` forwards a study's events to a tool.

The process ends when its standard input is closed, which happens however the supervisor ends; events written until then are
forwarded first. The position in the event files is saved in DIR/mirrors/KIND.json after the tool has flushed: a process
killed between the two sends the last second's numbers twice. Steps that a resumed run repeats are skipped.
"""

import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError, InputError
from addnorm.fields import flat_fields
from addnorm.statistics import Ranking
from addnorm.statistics.conclusion import conclusion
from addnorm.store import Event, EventFollower, StudyFolder, read_json, unrepeated, write_json
from addnorm.store.files import make_folder
from addnorm.store.results import ranking
from addnorm.supervision.trackers import TRACKERS, VERDICTS, SentVerdicts, ToolMissing, Tracker

FOLDER = "mirrors"
"""Folder of the trackers in the study's folder; the name of version 0.1, which existing studies have."""
TOOL_MISSING = 3
"""Exit code if the tool is not installed."""
_NOT_FORWARDED = frozenset({"time", "attempt", "step", "type", "first", "final"})
_TYPES = ("train", "eval")
_PAUSE_S = 1.0
_NICENESS = 10


class EventForwarder:
    """Forwards a study's events to a tracker, from the position where an earlier process stopped.

    Args:
        study: the study's folder.
        tracker: receives the numbers.
        position_file: the file with the position in each run's events.
    """

    def __init__(self, study: StudyFolder, tracker: Tracker, position_file: Path) -> None:
        self.study, self.tracker, self.position_file = study, tracker, position_file
        self._positions: dict[str, dict[str, Any]] = read_json(position_file) if position_file.exists() else {}
        self._open: set[str] = set()
        self._plan = self._plan_file()

    def update(self) -> None:
        """Forward the new events of every run.

        Raises:
            Damaged, JobError: events are damaged, or files cannot be read or written.
        """
        if self._plan != (plan := self._plan_file()):
            # Tuning, seeds in stages and a second batch add runs while the study is trained.
            self.study, self._plan = StudyFolder(self.study.path), plan
        forwarded = False
        for run in self.study.all_runs():
            position = self._positions.get(run.name, {"offset": 0, "steps": {}, "known": None, "ended": None})
            # A file that was replaced makes this raise `Damaged`, and the tracker stops: the tool has numbers that no
            # longer belong to the run, and only the user can say what is to become of them.
            follower = EventFollower(run.events_path, position["offset"])
            events = list(follower.read())
            ended = (run.ending() or {}).get("state")
            if not events and ended == position["ended"]:
                continue
            if run.name not in self._open:
                config = dict(flat_fields(run.spec.get("spec") or {}))
                position["known"] = self.tracker.begin(run.name, config, position["known"])
                self._open.add(run.name)
            for step, time, values in _points(events, position["steps"]):
                self.tracker.log(run.name, step, time, values)
            # In memory now, on the disk only after the tool has flushed. The other order would lose numbers in a crash;
            # this one may send a second's numbers twice, which tools that key by step absorb.
            self._positions[run.name] = {**position, "offset": follower.position, "ended": ended}
            if ended is not None:
                self._end(run.name, ended)
            forwarded = True
        if forwarded:
            self.tracker.flush()
            write_json(self.position_file, self._positions)

    def close(self) -> None:
        """End every run that is open."""
        for name in sorted(self._open):
            self._end(name, "interrupted")

    def conclude(self) -> None:
        """Store the verdicts of a study all of whose runs have ended, unless the tool has them already.

        Raises:
            Damaged, JobError: results are damaged, or files cannot be read or written.
        """
        if not all(status.is_over for status in self.study.statuses()):
            return
        try:
            verdicts = verdicts_of(ranking(self.study), len(self.study.runs()))
        except InputError:  # nothing to compare, such as tuning runs alone; `addnorm rank` says why
            return
        position = self._positions.get(VERDICTS, {})
        content = {"answer": verdicts.answer, **verdicts.numbers}
        if not verdicts.comparisons or position.get("sent") == content:
            return
        self.study.record_peek()  # what is sent is seen: seeds that are added later are added after a look
        known = self.tracker.conclude(verdicts, position.get("known"))
        self._positions[VERDICTS] = {"known": known, "sent": content}
        write_json(self.position_file, self._positions)

    def _plan_file(self) -> tuple[int, int]:
        status = (self.study.path / "study.json").stat()
        return status.st_ino, status.st_mtime_ns

    def _end(self, name: str, state: str) -> None:
        self._open.discard(name)
        self.tracker.end(name, state)


def verdicts_of(ranking: Ranking, runs: int) -> SentVerdicts:
    """The verdicts of a ranking, as they are sent.

    Args:
        ranking: of the study.
        runs: number of compared runs.
    """
    rows = []
    for variant, reference, comparison in ranking.comparisons:
        low, high = comparison.interval or (None, None)
        row = {
            "variant": variant,
            "reference": reference,
            "verdict": comparison.verdict or "none",
            "difference": comparison.difference,
            "low": low,
            "high": high,
            "seeds": comparison.seeds,
        }
        rows.append({name: value for name, value in row.items() if value is not None})
    return SentVerdicts(answer=" ".join(map(str, conclusion(ranking))), comparisons=rows, runs=runs)


def _points(events: list[Event], steps: dict[str, int]) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Step, time and values of every measurement, each step once. `steps`: the largest step so far by event type."""
    for event in unrepeated((event for event in events if event["type"] in _TYPES), steps):
        kind = event["type"]
        values = {
            f"{kind}/{name}": float(value)
            for name, value in event.items()
            if name not in _NOT_FORWARDED and isinstance(value, int | float) and not isinstance(value, bool)
        }
        yield event["step"], float(event["time"]), values


def follow(kind: str, out: Path, *, wait_for_stop: Callable[[], bool]) -> None:
    """Follow a study until asked to stop.

    Args:
        kind: the tracker.
        out: the study's folder.
        wait_for_stop: waits a moment; returns True when the process should stop.

    Raises:
        ToolMissing: the tool is not installed.
        AddnormError: the study's files, or the tracker's own, cannot be used.
    """
    folder = out / FOLDER / kind
    make_folder(folder)
    study = StudyFolder(out)
    tracker: Tracker = TRACKERS.class_of(kind)(folder, study.name)
    follower = EventForwarder(study, tracker, out / FOLDER / f"{kind}.json")
    while True:
        # Asked before the update: what was written until the supervisor closed the pipe is still forwarded.
        stop = wait_for_stop()
        follower.update()
        if stop:
            follower.close()
            follower.conclude()
            return


def main(arguments: list[str]) -> int:
    """Track a study. Returns the exit code; the last line of standard error is the reason of a failure."""
    kind, out = arguments
    with suppress(OSError):
        os.nice(_NICENESS)  # training has precedence
    try:
        follow(kind, Path(out), wait_for_stop=_input_is_closed)
    except ToolMissing as error:
        print(error, file=sys.stderr)  # noqa: T201  read by the supervisor
        return TOOL_MISSING
    except AddnormError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except Exception as error:  # noqa: BLE001  a tool may raise anything; the reason is the log's last line
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _input_is_closed() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], _PAUSE_S)
    return bool(ready) and os.read(sys.stdin.fileno(), 1) == b""


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Some tools leave threads or exit handlers that wait for a network; all numbers have been flushed.
    os._exit(code)
