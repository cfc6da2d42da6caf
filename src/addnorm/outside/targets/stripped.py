"""A file written by `addnorm audit --strip`: the model that was stripped, without what the file's metadata name.

The metadata name the original target and its configuration, which are resolved again; a relative path or a module is
found from the folder in which the original was.
"""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.outside.targets.target import Target
from addnorm.redundancy.rewriting.stripped_file import load_stripped, read_metadata


def stripped_target(path: Path, original: Callable[[str, Mapping[str, Any] | None], Target]) -> Target:
    """Load a stripped model.

    Args:
        path: of the file.
        original: resolves a target by its name and configuration, at its full size.

    Raises:
        InputError: the file names no target, its target does not exist, or the weights do not fit it.
    """
    metadata = read_metadata(path)
    if not metadata.get("target"):
        raise InputError(
            f"{path}: expected metadata that name the model which was stripped, got none, as in a file of an earlier version "
            "or of `Certificate.save` without `target`. Strip the model again with `addnorm audit --strip`, or save it with "
            "its `target`."
        )
    config = json.loads(metadata["config"]) if metadata.get("config") else None
    target = original(metadata["target"], config)
    model = copy.deepcopy(target.model)  # a function may return one model each time
    load_stripped(model, path)
    notes = (*target.notes, f"weights: {path}, stripped from {metadata['target']}")
    return Target(name=str(path), model=model, inputs=target.inputs, kind="stripped file", notes=notes)
