"""A study's own mechanisms: files that join a room for as long as the process lives."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec, add_plugin, remove_plugin, room
from addnorm.errors import InputError
from addnorm.testing.contract import check_mechanism, require_defaults


def load_plugins(paths: Sequence[str], base_dir: Path) -> tuple[str, ...]:
    """Let the files take part like built-in mechanisms, once each has kept its room's contract.

    Args:
        paths: the files; relative ones are relative to `base_dir`.
        base_dir: folder of the study file.

    Returns:
        The files' absolute paths, as a run's spec keeps them.

    Raises:
        InputError: a file is missing, fails to import (the message has the line), defines no spec or several, has the
            name of another kind, or breaks the contract (the message has the law).
    """
    found = []
    for path in paths:
        file = (base_dir / path).resolve()
        home, kind = add_plugin(file)
        try:
            _require_contract(home.name, kind, plugin_hash(str(file)))
        except InputError as error:
            remove_plugin(kind)  # so that a corrected file may join
            raise InputError(f"plugin {file}: {error}") from error
        found.append(str(file))
    return tuple(found)


def plugin_hash(path: str) -> str:
    """SHA-256 of a plugin's file, as hex digits.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"plugin {path} cannot be read: {error.strerror}.") from error


@cache
def _require_contract(room_name: str, kind: str, content: str) -> None:
    """Hold a mechanism to the laws of its room, once per content of its file."""
    cls = room(room_name).spec_class(kind)
    require_defaults(cls)
    if room_name in MECHANISM_ROOMS:  # what belongs to the lab is no part of a model, and has no laws to break
        check_mechanism(room_name, cls())


def plugin_of(spec: Spec) -> str | None:
    """Absolute path of the plugin that defines the spec; None for a built-in one."""
    for home in ROOMS.values():
        path = home.plugins.get(spec.kind)
        if path is not None and isinstance(spec, home.spec_class(spec.kind)):
            return str(path)
    return None
