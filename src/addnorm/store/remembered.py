"""Plug-ins of a study, remembered by its folder: where each file lies, its hash, its docstring, and a copy of it.

    plugins/plugins.json    {"plugins": [{"path", "sha256", "kind", "docstring", "copy"}]}
    plugins/HASH/recent.py  as the runs were trained with; a folder each, so that two files of one name both stay

Plug-ins are code. A folder may come from somebody else, so that what it names is run only if this user has trained with the
very same content before: `trust` keeps the hashes of such files outside of all folders, and `to_load` asks for one of them.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.docstrings import Doc, module_docstring, parse_docstring
from addnorm.errors import AddnormError, InputError
from addnorm.store.files import make_folder, read_json, write_json
from addnorm.words import say

FOLDER, _RECORD = "plugins", "plugins.json"
STATE = "ADDNORM_STATE"
"""Environment variable with the folder of what addnorm keeps for a user; by default `addnorm` in `$XDG_STATE_HOME`, or in
`~/.local/state`."""
_TRUSTED = "trusted-plugins"


@dataclass(frozen=True, kw_only=True)
class RememberedPlugin:
    """One file, or function of a file, of the user's own."""

    path: str
    """As the runs' specs have it: absolute, with `:FUNCTION` for a function."""
    sha256: str
    kind: str
    docstring: str
    copy: Path

    @property
    def doc(self) -> Doc:
        """Its docstring when the study was planned."""
        return parse_docstring(self.kind, self.docstring)

    @property
    def source(self) -> str:
        """The file's text when the study was planned; empty if the copy is missing or was changed."""
        content = _read(self.copy)
        if content is None or _digest(content) != self.sha256:
            return ""
        return content.decode("utf-8", "replace")


def remember(out: Path, plugins: Iterable[str]) -> None:
    """Write down the plug-ins that a study is trained with; those that are remembered already stay as they are.

    Args:
        out: folder of the study.
        plugins: absolute paths of files, or references `FILE.py:FUNCTION`.

    Raises:
        DiskFull, JobError: the folder cannot be written.
    """
    known = remembered(out)
    for path in plugins:
        if path in known:
            continue
        file, content = plugin_file(path), _read(plugin_file(path))
        if content is None:
            continue
        sha256 = _digest(content)
        copy = out / FOLDER / sha256[:12] / file.name  # the name stays: a mechanism's kind is that of its file
        make_folder(copy.parent)
        copy.write_bytes(content)
        known[path] = RememberedPlugin(
            path=path, sha256=sha256, kind=file.stem, docstring=module_docstring(content), copy=copy
        )
        _trust(sha256)
    if known:
        entries = [{**vars(each), "copy": each.copy.relative_to(out / FOLDER).as_posix()} for each in known.values()]
        write_json(out / FOLDER / _RECORD, {"plugins": entries})


def remembered(out: Path) -> dict[str, RememberedPlugin]:
    """The plug-ins of a study by their paths; {} for a folder of an earlier version, or with a damaged record."""
    try:
        entries = read_json(out / FOLDER / _RECORD)["plugins"]
        return {each["path"]: _entry(out, each) for each in entries}
    except (AddnormError, OSError, KeyError, TypeError):
        return {}  # asked for as before: with --plugin


def to_load(out: Path, path: str) -> str | None:
    """The path from which a plug-in of a study may be loaded unasked; None if the user has to give it.

    Raises:
        InputError: the file has changed since the study was planned.
    """
    entry = remembered(out).get(path)
    if entry is None or not _is_trusted(entry.sha256):
        return None
    now = _read(plugin_file(path))
    if now is None:  # moved or removed: the copy is what the runs were trained with
        return _at(entry.copy, path) if entry.source else None
    if _digest(now) != entry.sha256:
        raise InputError(say("plugin_changed", path=path, out=str(out), copy=str(_at(entry.copy, path))))
    return path


def to_give(out: Path, plan_plugins: Iterable[str]) -> list[str]:
    """Those of a plan's plug-ins that a command on this machine has to be given."""
    entries = remembered(out)
    return [path for path in plan_plugins if path not in entries or not _is_trusted(entries[path].sha256)]


def _entry(out: Path, values: Mapping[str, Any]) -> RememberedPlugin:
    texts = {name: str(values[name]) for name in ("path", "sha256", "kind", "docstring")}
    # The record may be somebody else's: no path in it leads out of the folder. Earlier versions wrote a name alone.
    inside = [part for part in Path(str(values["copy"])).parts[-2:] if part not in ("..", "/")]
    return RememberedPlugin(**texts, copy=Path(out, FOLDER, *inside))


def plugin_file(path: str) -> Path:
    """Return the file of a plugin or of a reference."""
    return Path(path.rpartition(":")[0] if ":" in Path(path).name else path)


def _at(copy: Path, path: str) -> str:
    """The copy, with the function of a reference."""
    return f"{copy}:{path.rpartition(':')[2]}" if ":" in Path(path).name else str(copy)


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _trust_file() -> Path:
    if own := os.environ.get(STATE):
        return Path(own) / _TRUSTED
    home = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(home) / "addnorm" / _TRUSTED


def _trust(sha256: str) -> None:
    file = _trust_file()
    if _is_trusted(sha256):
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # One short line in one write, so that two studies that start at once both keep theirs.
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{sha256}\n")
    except OSError:
        pass  # a home that cannot be written: commands go on to ask for --plugin


def _is_trusted(sha256: str) -> bool:
    return sha256.encode() in (_read(_trust_file()) or b"").split()
