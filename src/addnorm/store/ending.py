"""End of a run: DONE, FAILED or BLOCKED in its folder, also on a full disk, and the record without which none is finished."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from addnorm.errors import AddnormError, InputError
from addnorm.store.files import MISSING, Damaged, DiskFull, disk_error, read_json, to_bytes, write_json

Ending = Literal["finished", "failed", "diverged", "blocked"]

MARKERS: dict[Ending, str] = {"finished": "DONE", "failed": "FAILED", "diverged": "FAILED", "blocked": "BLOCKED"}
"""Names of the files by the state that they set."""

NOT_FINITE = "not finite"
"""`cause` in FAILED of a run whose loss or gradient became NaN or infinite: a repetition would end in the same way."""
WRONG_INPUT = "wrong input"
"""`cause` in FAILED of a run whose spec or plugin is wrong: a repetition would end in the same way."""

_RESERVE, _RESERVE_BYTES = ".reserve", 4096


def read_ending(folder: Path) -> dict[str, Any] | None:
    """Content of DONE, FAILED or BLOCKED, always with `state` and `reason`; None without any of them.

    A FAILED or BLOCKED without content, as `touch FAILED` makes it, sets the state. A DONE without content does not: it was
    cut short, and whether the final weights are whole is not known.

    Raises:
        JobError: one of them cannot be read.
    """
    states: tuple[Ending, ...] = ("finished", "failed", "blocked")
    # A fixed order where several markers are there, as a crash between two writes can leave them: DONE is only written
    # by a worker that has everything, so it counts most; BLOCKED counts least, because the next attempt lifts it
    # anyway.
    for state in states:
        name = MARKERS[state]
        try:
            content = read_json(folder / name)
        except InputError:
            continue  # there is none
        except Damaged:
            content = None
        if isinstance(content, dict) and MARKERS.get(content.get("state", state)) == name:
            return {"reason": None, "step": 0, "state": state, **content}
        if state != "finished":
            return {"state": state, "reason": f"{name} holds no reason", "step": 0}
    return None


def write_ending(folder: Path, state: Ending, content: Mapping[str, Any]) -> None:
    """Write DONE, FAILED or BLOCKED. A reason for which a full disk has no room takes the place of the reserve.

    Raises:
        InputError, DiskError: as `write_json`.
    """
    try:
        # The usual way needs room for a second file beside the first. On a full disk it fails, and the reserve, whose
        # blocks were taken when the attempt began, is overwritten in place and renamed: that needs no new block. A DONE
        # never goes there: its weights could not have been written either.
        write_json(folder / MARKERS[state], content)
    except DiskFull:
        if state == "finished" or not _fill_reserve(folder, state, content):
            raise
    if state != "blocked":
        with suppress(OSError):
            (folder / _RESERVE).unlink(missing_ok=True)


def make_reserve(folder: Path) -> None:
    """Take room on the disk for the reason that it has no room: without it, a full disk would look like a crash.

    Raises:
        DiskError: the file cannot be written.
    """
    path = folder / _RESERVE
    try:
        if not path.exists():
            path.write_bytes(b" " * _RESERVE_BYTES)
    except OSError as error:
        raise disk_error(error, path) from error


def lift_block(folder: Path) -> None:
    """Remove BLOCKED, whose room on the disk becomes the reserve again.

    Raises:
        DiskError: the operating system refuses.
    """
    path = folder / MARKERS["blocked"]
    try:
        os.replace(path, folder / _RESERVE)
    except MISSING:
        pass
    except OSError as error:
        raise disk_error(error, path) from error


DAMAGED_DONE = "DONE is damaged; the same addnorm run command trains the last steps again and writes it"


def other_run(folder: Path, run: str) -> str | None:
    """Sentence if a folder is that of another run than the plan says, as after a swap or a copy; None if nothing shows it."""
    own = run
    with suppress(AddnormError, OSError, KeyError, TypeError):  # of a missing or damaged file, which is written again
        own = read_json(folder / "spec.json")["run"]
    if own == run:
        return None
    return (
        f"{folder}: expected the folder of run {run}, got that of {own} (spec.json). Give both their names again; or remove "
        "this folder and give the same addnorm run command again, which trains the run from the start."
    )


def missing_record(folder: Path, trouble: str | None) -> str:
    """Reason why a run with DONE is not finished.

    Args:
        folder: the run's folder.
        trouble: the problem with its events; None if they end before the last step.
    """
    problem = (
        trouble or f"{folder / 'events.jsonl'} does not record the last step, though DONE says that the run finished."
    )
    return (
        f"{problem} Restore the file from a copy; or remove the folder {folder} and give the same addnorm run command again, "
        "which trains the run from the start."
    )


def missing_weights(path: Path, ending: Mapping[str, Any]) -> str | None:
    """Remark about a finished run whose weights are gone, while its numbers stand; None for one that has them.

    Args:
        path: of the final weights.
        ending: content of DONE.
    """
    if "weights_bytes" not in ending:
        return None  # a run of an earlier version
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    if size == ending["weights_bytes"]:
        return None
    return (
        f"{path.name} is missing or damaged; the numbers are complete. To have the weights made again, remove DONE and give "
        "the same addnorm run command again"
    )


def _fill_reserve(folder: Path, state: Ending, content: Mapping[str, Any]) -> bool:
    """Write an ending over the reserve, whose blocks the disk has given out already. Returns False if that is impossible."""
    shorter = {name: value for name, value in content.items() if name != "log"}
    texts = [to_bytes(json.dumps(kept, ensure_ascii=False)) for kept in (content, shorter)]
    fitting = [text for text in texts if len(text) <= _RESERVE_BYTES]
    if not fitting:
        return False
    with suppress(OSError):
        with open(folder / _RESERVE, "r+b") as file:
            file.write(fitting[0].ljust(_RESERVE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / _RESERVE, folder / MARKERS[state])
        return True
    return False
