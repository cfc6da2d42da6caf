"""Runs of a folder of TensorBoard events: a folder below it is a run, named by variant and seed."""

import re
from collections.abc import Iterable
from pathlib import Path

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.run_tables.columns import Names
from addnorm.statistics.run_tables.endings import Run
from addnorm.statistics.run_tables.event_files import EventFile, LastValue, read_events
from addnorm.words import Sentence, listed, say

_EVENTS = "events.out.tfevents.*"
_RUN = re.compile(r"(?P<variant>.+?)[/_.-]+(?:seed|s)[_=-]?(?P<seed>\d+)(?:-[0-9a-f]{8})?", re.IGNORECASE)
"""`deep/seed-0`, `deep-s0`, and `deep-s0-1f2e3d4c`, as addnorm names its own runs."""
_HELD_OUT = re.compile(
    r"(?:.*[/_.-])?(?:eval|val|valid|validation|test|held[_-]?out)[/_.-](?:.*[/_.-])?loss", re.IGNORECASE
)


def holds_events(folder: Path) -> bool:
    """True if event files lie somewhere below the folder."""
    return folder.is_dir() and next(folder.rglob(_EVENTS), None) is not None


def read_folder(folder: Path, names: Names) -> tuple[list[Run], str, list[Sentence]]:
    """The runs, the tag that is their loss, and what a reader has to know about resumed ones and folders left out.

    The newest value of the tag counts; where a later file repeats steps of an earlier one, it replaces them.

    Raises:
        InputError: no such tag, two folders of one run, or a folder whose name tells no variant and seed.
    """
    by_run: dict[str, list[EventFile]] = {}
    for path in sorted(folder.rglob(_EVENTS)):
        by_run.setdefault(path.parent.relative_to(folder).as_posix(), []).append(read_events(path))
    tags = sorted({tag for files in by_run.values() for file in files for tag in file.last})
    tag = _tag(tags, names, folder)
    runs, notes, left_out = [], [], []
    where: dict[tuple[str, int], str] = {}
    for name, files in by_run.items():
        newest: LastValue | None = None
        files = [file for file in files if not any(_is_copy(file, other) for other in files)]
        for file in sorted(files, key=lambda file: (file.start, file.path.name)):
            if tag in file.last:
                newest = file.last[tag].after(newest, repeats=True)
        if newest is None and not is_run(name, names, folder):
            continue
        if names.run is not None and len(by_run) > 1 and names.matched(name) is None:
            left_out.append(name)
            continue
        variant, seed = run_named(name, names, folder)
        if (other := where.setdefault((variant, seed), name)) != name:
            raise InputError(
                f"{folder / name}: expected one run of variant {variant!r} at seed {seed}, got a second one beside {other}. "
                "Keep the folder of the run that ended."
            )
        if newest is None:
            runs.append(Run(where=str(folder / name), variant=variant, seed=seed, loss=None, state="unfinished"))
            continue
        step = None if names.step == "" else newest.step
        runs.append(Run(where=str(folder / name), variant=variant, seed=seed, loss=newest.value, step=step))
        if newest.replaced is not None:
            notes.append(say("resumed", run=name, replaced=newest.replaced, step=newest.step))
    if left_out and not runs:
        run_named(left_out[0], names, folder)  # refuses it
    if left_out:
        notes.append(
            say("folders_left_out", count=len(left_out), runs=listed("comma", left_out[:3]), form=names.run or "")
        )
    return runs, tag, notes


def is_run(name: str, names: Names, folder: Path) -> bool:
    """True for a folder that is named as a run."""
    try:
        run_named(name, names, folder)
    except InputError:
        return False
    return True


def _is_copy(file: EventFile, other: EventFile) -> bool:
    """True for an earlier copy of a file, such as one named `.bak`; of equal ones, for all but the first by name."""
    if file is other or file.start != other.start:
        return False
    own, whole = file.path.read_bytes(), other.path.read_bytes()
    return whole.startswith(own) and (len(own), other.path.name) < (len(whole), file.path.name)


def _tag(tags: Iterable[str], names: Names, folder: Path) -> str:
    if names.loss in tags:
        return names.loss
    held_out = [tag for tag in tags if _HELD_OUT.fullmatch(tag)]
    if not names.loss_named and len(held_out) == 1:
        return held_out[0]
    raise InputError(
        f"{folder}: expected a scalar {names.loss!r}, got {', '.join(tags) or 'none'}.{did_you_mean(names.loss, tags)} "
        "Name the tag with --columns loss=TAG."
    )


def run_named(run: str, names: Names, folder: Path) -> tuple[str, int]:
    """Variant and seed of a folder's name.

    Raises:
        InputError: the name has another form.
    """
    if names.run is not None and not ("{variant}" in names.run and "{seed}" in names.run):
        raise InputError(
            f"columns: expected run={{variant}}_{{seed}} or another form with both, got run={names.run!r}."
        )
    named = _RUN.fullmatch(run) if names.run is None else names.matched(run)
    if named is None:
        form = "variant and seed, such as deep/seed-0 or deep-s0" if names.run is None else repr(names.run)
        raise InputError(
            f"{folder / run}: expected a run named by {form}, got {run!r}. Give the form of the names as --columns "
            "'run={variant}_{seed}', where * stands for anything else."
        )
    return named["variant"], int(named["seed"])
