"""The decoded spec of a run's folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from addnorm.errors import InputError
from addnorm.store import Damaged, RunFolder
from addnorm.store.remembered import to_load
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.plugins import is_loaded, load_plugins
from addnorm.words import listed, say


def run_spec(run: RunFolder) -> RunSpec:
    """Decode the spec of a run.

    Raises:
        InputError: the folder is not a run, or the run needs a plugin that is not loaded.
        Damaged: the spec is damaged.
    """
    content, path = run.spec, run.path / "spec.json"
    if "spec" not in content:
        raise Damaged(f"{path} is damaged: expected a field 'spec', got none. Restore the file from a copy.")
    if isinstance(content["spec"], dict):
        paths = content["spec"].get("plugins", ())
        if isinstance(paths, list | tuple):
            load_remembered(run.path.parent, [str(each) for each in paths])
        require_plugins(paths, path, "--plugin")
    return decode(RunSpec, content["spec"], path=f"{path}: $.spec")


def load_remembered(out: Path, paths: Sequence[str]) -> None:
    """Load those plug-ins that a study's folder remembers and this user has trained with.

    Raises:
        InputError: one of them has changed since, or breaks a law.
    """
    for path in paths:
        place = None if is_loaded(path) else to_load(out, path)
        if place is not None:
            load_plugins([place], Path())


def require_plugins(paths: Any, where: Path, way: str) -> None:
    """Make sure that the plugins of a spec are loaded.

    Args:
        paths: the plugins' paths, as the file has them.
        where: the file, for messages.
        way: the option or argument by which the user gives plugins.

    Raises:
        InputError: a plugin is not loaded in this process.
        Damaged: the paths are not a list.
    """
    if not isinstance(paths, list | tuple):
        raise Damaged(f"{where} is damaged: plugins: expected a list, got {paths!r}. Restore the file from a copy.")
    missing = [str(path) for path in paths if not is_loaded(str(path))]
    if missing:
        raise InputError(say("plugins_not_given", where=str(where), names=listed("comma", missing), way=way))
