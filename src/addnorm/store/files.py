"""Files that are wholly there or not there at all, and disk troubles said in words.

    temporary file in the same folder -> write -> fsync -> rename -> fsync the folder

Why each step: the rename makes the change atomic, the first fsync keeps a power cut from renaming an empty file into
place, the second keeps the rename itself from being lost.
"""

import errno
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from addnorm.errors import InputError, JobError

_serial = itertools.count()
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class DiskFull(JobError):
    """There is no room (or no quota) left for a file; what was there before is whole."""


class Damaged(JobError):
    """A file of ours does not hold what was written into it."""


def disk_error(error: OSError, path: Path) -> JobError:
    """The error to show the user for a write to `path` that the system refused."""
    said = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFull(
            f"no room left to write {path} ({said}). Nothing already written is lost: free some space on that disk, "
            "then give the same command again."
        )
    if error.errno in _FORBIDDEN:
        return JobError(
            f"not allowed to write {path} ({said}). Make the folder writable, or choose another one with --out."
        )
    return JobError(f"could not write {path} ({said}). Check that the disk is there, then give the same command again.")


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and vanishes when it does not.

    Raises:
        DiskFull: no room left; `path` is as it was before.
        JobError: any other refusal of the system, with what to do.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_atomic(path: Path, content: bytes) -> None:
    """Put `content` at `path`, wholly or not at all.

    Raises:
        DiskFull, JobError: as `atomic`.
    """
    with atomic(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Put `value` at `path` as readable JSON, wholly or not at all.

    Raises:
        InputError: the value holds something that JSON does not (a NaN, a tensor).
        DiskFull, JobError: as `atomic`.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path.name} holds plain numbers, texts, lists and dicts alone: {error}.") from error
    write_atomic(path, to_bytes(text + "\n"))


def read_json(path: Path) -> Any:
    """What the JSON file holds.

    Raises:
        InputError: there is no such file.
        Damaged: the file is not JSON; the message names the place.
        JobError: the system does not let us read it.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    try:
        return json.loads(content)
    except ValueError as error:
        raise Damaged(
            f"{path} is damaged: {len(content)} bytes that are not JSON ({error}). Restore it from a copy."
        ) from error


def to_bytes(text: str) -> bytes:
    r"""UTF-8 of a JSON text. A lone surrogate (from an odd file name) becomes \udcXX, which JSON reads back."""
    return text.encode("utf-8", "backslashreplace")


def make_folder(path: Path) -> None:
    """Make the folder and its parents if they are not there.

    Raises:
        InputError: something that is not a folder is in the way.
        JobError: the system refuses.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"{path} must be a folder, but a file is in the way. Choose another one with --out."
        ) from error
    except OSError as error:
        raise disk_error(error, path) from error


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk, so that it survives a power cut.

    Raises:
        OSError: the system refuses; `disk_error` explains it.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
