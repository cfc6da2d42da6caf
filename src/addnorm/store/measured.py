"""Folders of measured checkpoints, in the folder of a study or in any other, with the files that a run's folder has.

DIR/measured/NAME/checkpoint.json   where the checkpoint is
DIR/measured/NAME/insight.json      its measures per layer
DIR/measured/NAME/terms.json        the four terms of its scores
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.store.files import Damaged, make_folder, read_json, write_json

MEASURED = "measured"
"""Name of the folder in DIR."""
CHECKPOINT = "checkpoint.json"
SKIPPED = "not-inspected.json"
"""File of a study: why runs have no measures per layer, by the run's name."""
FORMAT = 1


def measured_names(folder: Path) -> tuple[str, ...]:
    """Names of the checkpoints that were measured into a folder, sorted."""
    try:
        return tuple(sorted(path.parent.name for path in (folder / MEASURED).glob(f"*/{CHECKPOINT}")))
    except OSError:
        return ()


def measured_folder(folder: Path, name: str | None, checkpoint: Path) -> Path:
    """Folder for the measures of a checkpoint, which need not exist.

    Args:
        folder: of a study, or any other.
        name: by which pages call the checkpoint; None for that of its folder.
        checkpoint: its folder.

    Raises:
        InputError: the name cannot be that of a folder, or is another checkpoint's or that of a model of the study; or
            `folder` is a run's.
        Damaged: a file is damaged.
    """
    name, place = name or checkpoint.resolve().name, str(checkpoint.resolve())
    if (folder / "spec.json").is_file():
        raise InputError(
            f"--to {folder}: expected the folder of a study, or one for measured checkpoints, got that of a run. Give another "
            "folder, such as the study's."
        )
    if Path(name).name != name or name.startswith("."):
        raise InputError(f"--name: expected a name without slashes that starts with no dot, got {name!r}.")
    if name in _variants(folder):
        raise InputError(
            f"--name: expected a name that no model of the study {folder} has, got {name!r}. Give another --name."
        )
    of_checkpoint = folder / MEASURED / name
    if (of_checkpoint / CHECKPOINT).is_file():
        content = read_json(of_checkpoint / CHECKPOINT)
        known = content.get("folder") if isinstance(content, dict) else None
        if known != place:
            raise InputError(
                f"--name: expected a name that no other checkpoint in {folder} has, got {name!r}, which is {known}. Give "
                f"another --name, or remove {of_checkpoint}."
            )
    return of_checkpoint


def write_measured(of_checkpoint: Path, checkpoint: Path, file: str, content: Mapping[str, Any]) -> None:
    """Write measures of a checkpoint.

    Args:
        of_checkpoint: from `measured_folder`.
        checkpoint: its folder.
        file: name of the file.
        content: of the file.

    Raises:
        JobError: the folder cannot be written.
    """
    make_folder(of_checkpoint)
    write_json(of_checkpoint / CHECKPOINT, {"format": FORMAT, "folder": str(checkpoint.resolve())})
    write_json(of_checkpoint / file, content)


def _variants(folder: Path) -> tuple[str, ...]:
    """Names of a study's variants; none without a study."""
    if not (folder / "study.json").is_file():
        return ()
    plan = read_json(folder / "study.json")
    runs = plan.get("runs") if isinstance(plan, dict) else None
    if not isinstance(runs, list):
        raise Damaged(f"{folder / 'study.json'} is damaged: $.runs: expected a list, got {json.dumps(runs)[:80]}.")
    return tuple(str(run.get("variant")) for run in runs if isinstance(run, dict))
