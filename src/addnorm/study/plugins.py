"""Plugins: files with a user's own siblings, which join their rooms for the lifetime of the process.

A reference `FILE.py:FUNCTION` is a plugin too: the function builds a model of the user's own, and is known by the file's name.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS, Spec, add_plugin, remove_plugin, room
from addnorm.errors import InputError
from addnorm.store.remembered import plugin_file
from addnorm.study.foreign import ForeignSpec
from addnorm.testing.contract import check_mechanism, of_defaults
from addnorm.user_code import import_function

Builder = tuple[str, Callable[..., Any], ModuleType]
"""Absolute reference, function and module."""
_BUILDERS: dict[str, tuple[str, Builder]] = {}
"""Content of the file, and builder, by FILE.py:FUNCTION without the file's folder."""


def load_plugins(paths: Sequence[str], base_dir: Path, *, is_checked: bool = False) -> tuple[str, ...]:
    """Add files to their rooms after checking each against the laws of its room.

    Args:
        paths: the files, and references `FILE.py:FUNCTION`.
        base_dir: the folder that relative paths are relative to, such as that of the study file.
        is_checked: whether the process that started this one has checked them.

    Returns:
        The files' absolute paths, as they stand in a run's spec.

    Raises:
        InputError: a file is missing, fails to import (the message has the line), defines no spec or several, has the
            name of another sibling, or breaks a law of its room (the message has the law).
    """
    files = []
    for path in paths:
        if ":" in Path(path).name:
            files.append(add_builder(path, base_dir))
            continue
        file = (base_dir / path).resolve()
        # Added first, checked second: the laws build models by the kind's name, which must be known for that. A plugin
        # that breaks a law is taken out again, so that the same process, a notebook, can load the corrected file.
        home, kind = add_plugin(file)
        try:
            # The laws take a worker three seconds, as long as many a run, most of it the import of torch's tracer.
            if not is_checked:
                _require_contract(home.name, kind, plugin_hash(str(file)))
        except InputError as error:
            remove_plugin(kind)  # so that a corrected file may join
            raise InputError(f"plugin {file}: {error}") from error
        files.append(str(file))
    return tuple(files)


def add_builder(reference: str, base_dir: Path) -> str:
    """Add the function of a reference.

    Args:
        reference: `FILE.py:FUNCTION`.
        base_dir: the folder that a relative path is relative to.

    Returns:
        The reference with an absolute path.

    Raises:
        InputError: it has another form, the file is missing or fails to import, or has no such function; or another file of
            that name is loaded.
    """
    home, _, function_name = reference.rpartition(":")
    if not home.endswith(".py") or not function_name.isidentifier():
        raise InputError(
            f"python: expected FILE.py:FUNCTION, got {reference!r}. Write the function in a file: its content is part of a "
            "run's identity."
        )
    file = (base_dir / Path(home).expanduser()).resolve()
    absolute, name = f"{file}:{function_name}", f"{file.name}:{function_name}"
    # The name has no folder, because it is part of a run's identity: a study that was moved keeps its runs. Two files
    # of one name would then be one, and are refused; a changed file is imported again.
    known = _BUILDERS.get(name)
    if known is not None and known[1][0] != absolute:
        raise InputError(
            f"python: {absolute}: {name} is already that of {known[1][0]}. Rename the file or the function."
        )
    if not file.is_file():
        raise InputError(f"python: {file}: no such file. Give a path relative to the study, or an absolute one.")
    content = plugin_hash(absolute)
    if known is None or known[0] != content:
        _BUILDERS[name] = content, (absolute, *import_function(absolute, "python"))
    return absolute


def builder(name: str) -> Builder:
    """The function of a reference that was given among the plugins.

    Args:
        name: `FILE.py:FUNCTION`, without the file's folder.

    Raises:
        InputError: it was not given.
    """
    if name not in _BUILDERS:
        raise InputError(
            f"python: {name} is code, so it is not loaded unasked: give PATH/{name} among the plugins, in a command with "
            "--plugin."
        )
    return _BUILDERS[name][1]


def is_loaded(path: str) -> bool:
    """True if a plugin of that name has been given."""
    name = Path(path).name
    return name in _BUILDERS if ":" in name else any(Path(path).stem in home.plugins for home in ROOMS.values())


def plugin_hash(path: str) -> str:
    """SHA-256 of a plugin's file, or of that in a reference, as hex digits.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return hashlib.sha256(plugin_file(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"plugin {path}: cannot be read: {error.strerror}.") from error


@cache
def _require_contract(room_name: str, kind: str, content: str) -> None:
    """Check a sibling against the laws of its room, once per content of its file."""
    spec = of_defaults(room(room_name).spec_class(kind))
    if room_name in MECHANISM_ROOMS:  # what belongs to the lab is no part of a model, and has no laws to break
        check_mechanism(room_name, spec)


def plugin_of(spec: Spec) -> str | None:
    """Absolute path of the plugin that defines a spec, or reference of the one that it names; None for a built-in one."""
    reference = getattr(spec, "python", None) if isinstance(spec, ForeignSpec) else None
    if reference is not None:
        return builder(reference)[0]
    for home in ROOMS.values():
        path = home.plugins.get(spec.kind)
        if path is not None and isinstance(spec, home.spec_class(spec.kind)):
            return str(path)
    return None


def plugins_in(spec: object) -> Iterator[str]:
    """Paths of the plugins that a spec or any part of it comes from."""
    if isinstance(spec, Spec):
        path = plugin_of(spec)
        if path is not None:
            yield path
    if is_dataclass(spec):
        for field in fields(spec):
            yield from plugins_in(getattr(spec, field.name))
