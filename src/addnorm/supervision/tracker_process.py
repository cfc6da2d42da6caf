"""The process of one mirror: `python -m addnorm.supervision.tracker_process KIND DIR` reads a study's events and hands them on.

It ends when its standard input is closed, that is when the supervisor has ended in whatever way; what is in the files by
then is handed on first. How far it came is kept in DIR/mirrors/KIND.json, after the tool has been asked to flush: killed
between the two, it hands the last second's numbers on twice. A step that a resumed run writes again is left out.
"""

import os
import select
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from addnorm.errors import AddnormError
from addnorm.store import Event, EventFollower, RunFolder, StudyFolder, read_json, unrepeated, write_json
from addnorm.store.files import make_folder
from addnorm.supervision.trackers import Absent, Mirror, mirror_class

FOLDER = "mirrors"
"""In the study's folder."""
ABSENT = 3
"""Exit code where the tool is not installed."""
_OURS = frozenset({"time", "attempt", "step", "type", "first", "final"})
_TYPES = ("train", "eval")
_PAUSE_S = 1.0
_NICER = 10


class Follower:
    """Hands a study's events on to a mirror, from where an earlier process stopped.

    Args:
        study: the study.
        mirror: the tool.
        kept: the file that says how far everything is.
    """

    def __init__(self, study: StudyFolder, mirror: Mirror, kept: Path) -> None:
        self.study, self.mirror, self.kept = study, mirror, kept
        self._places: dict[str, dict[str, Any]] = read_json(kept) if kept.exists() else {}
        self._open: set[str] = set()

    def look(self) -> None:
        """Hand on what is new in every run's events.

        Raises:
            Damaged, JobError: events are damaged, or files cannot be read or written.
        """
        moved = False
        for run in self.study.runs():
            place = self._places.get(run.name, {"offset": 0, "steps": {}, "known": None, "ended": None})
            follower = EventFollower(run.events_path, place["offset"])
            events = list(follower.read())
            ended = (run.ending() or {}).get("state")
            if not events and ended == place["ended"]:
                continue
            self._begin(run, place)
            for step, time, values in _points(events, place["steps"]):
                self.mirror.log(run.name, step, time, values)
            self._places[run.name] = {**place, "offset": follower.position, "ended": ended}
            if ended is not None:
                self._end(run.name, ended)
            moved = True
        if moved:
            self.mirror.flush()
            write_json(self.kept, self._places)

    def close(self) -> None:
        """End every run that is open."""
        for name in sorted(self._open):
            self._end(name, "interrupted")

    def _begin(self, run: RunFolder, place: dict[str, Any]) -> None:
        if run.name not in self._open:
            place["known"] = self.mirror.begin(run.name, flat(run.spec.get("spec") or {}), place["known"])
            self._open.add(run.name)

    def _end(self, name: str, state: str) -> None:
        self._open.discard(name)
        self.mirror.end(name, state)


def flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested tables as one: `{"training": {"steps": 5}}` becomes `{"training.steps": 5}`."""
    found: dict[str, Any] = {}
    for name, entry in value.items():
        here = f"{path}.{name}" if path else str(name)
        found.update(flat(entry, here) if isinstance(entry, Mapping) else {here: entry})
    return found


def _points(events: list[Event], steps: dict[str, int]) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Step, time and values of every measurement, each step once. `steps`: the largest step so far by event type."""
    for event in unrepeated((event for event in events if event["type"] in _TYPES), steps):
        kind = event["type"]
        values = {
            f"{kind}/{name}": float(value)
            for name, value in event.items()
            if name not in _OURS and isinstance(value, int | float) and not isinstance(value, bool)
        }
        yield event["step"], float(event["time"]), values


def follow(kind: str, out: Path, *, told_to_stop: Any) -> None:
    """Follow a study until told to stop.

    Args:
        told_to_stop: waits a moment, then says whether it is time to stop.

    Raises:
        Absent: the tool is not installed.
        AddnormError: the study's files, or the mirror's own, cannot be used.
    """
    folder = out / FOLDER / kind
    make_folder(folder)
    study = StudyFolder(out)
    follower = Follower(study, mirror_class(kind)(folder, study.name), out / FOLDER / f"{kind}.json")
    while True:
        stop = told_to_stop()
        follower.look()
        if stop:
            follower.close()
            return


def main(arguments: list[str]) -> int:
    """Mirror a study. Returns the exit code; the reason of a failure is the last line of standard error."""
    kind, out = arguments
    with suppress(OSError):
        os.nice(_NICER)  # training comes first
    try:
        follow(kind, Path(out), told_to_stop=_input_is_closed)
    except Absent as error:
        print(error, file=sys.stderr)  # noqa: T201  read by the supervisor
        return ABSENT
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
    # Some tools leave threads or exit handlers that wait for a network; everything that counts has been flushed.
    os._exit(code)
