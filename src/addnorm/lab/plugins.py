"""A study's own mechanisms: files that join a room for as long as the process lives."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from addnorm.catalogue import ROOMS, Spec, add_plugin
from addnorm.errors import InputError


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
        add_plugin(file)
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


def plugin_of(spec: Spec) -> str | None:
    """Absolute path of the plugin that defines the spec; None for a built-in one."""
    for room in ROOMS.values():
        path = room.plugins.get(spec.kind)
        if path is not None and type(spec) in {room.spec_class(spec.kind)}:
            return str(path)
    return None
