"""Plugins: files with a user's own siblings, which join their rooms for the lifetime of the process."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec, add_plugin, remove_plugin, room
from addnorm.errors import InputError
from addnorm.testing.contract import check_mechanism, require_defaults


def load_plugins(paths: Sequence[str], base_dir: Path) -> tuple[str, ...]:
    """Add files to their rooms after checking each against the laws of its room.

    Args:
        paths: the files.
        base_dir: the folder that relative paths are relative to, such as that of the study file.

    Returns:
        The files' absolute paths, as they stand in a run's spec.

    Raises:
        InputError: a file is missing, fails to import (the message has the line), defines no spec or several, has the
            name of another sibling, or breaks a law of its room (the message has the law).
    """
    files = []
    for path in paths:
        file = (base_dir / path).resolve()
        home, kind = add_plugin(file)
        try:
            _require_contract(home.name, kind, plugin_hash(str(file)))
        except InputError as error:
            remove_plugin(kind)  # so that a corrected file may join
            raise InputError(f"plugin {file}: {error}") from error
        files.append(str(file))
    return tuple(files)


def plugin_hash(path: str) -> str:
    """SHA-256 of a plugin's file, as hex digits.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"plugin {path}: cannot be read: {error.strerror}.") from error


@cache
def _require_contract(room_name: str, kind: str, content: str) -> None:
    """Check a sibling against the laws of its room, once per content of its file."""
    cls = room(room_name).spec_class(kind)
    require_defaults(cls)
    if room_name in MECHANISM_ROOMS:  # what belongs to the lab is no part of a model, and has no laws to break
        check_mechanism(room_name, cls())


def plugin_of(spec: Spec) -> str | None:
    """Absolute path of the plugin that defines a spec; None for a built-in one."""
    for home in ROOMS.values():
        path = home.plugins.get(spec.kind)
        if path is not None and isinstance(spec, home.spec_class(spec.kind)):
            return str(path)
    return None
