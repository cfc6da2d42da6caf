"""Atomic writes, JSON files, and readable errors of the disk.

    temporary file in the same folder -> write -> fsync -> rename -> fsync the folder

Why each step: the rename makes the change atomic. Without the first fsync a power cut could leave an empty file under the
final name, without the second it could undo the rename.
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

MISSING = (FileNotFoundError, NotADirectoryError)
"""Errors of a path that does not exist, also because one of its folders was removed or is a file now."""

_serial = itertools.count()
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class DiskError(JobError):
    """The operating system refuses to write a file. Existing files are unchanged; the cause is outside the run."""


class DiskFull(DiskError):
    """No space (or quota) is left for a file. Existing files are unchanged."""


class Damaged(JobError):
    """A file written by addnorm does not have the content it was written with."""


def disk_error(error: OSError, path: Path) -> DiskError:
    """Error for the user about a write to `path` that the operating system refused."""
    cause = error.strerror or str(error)
    if error.errno in _FULL:
        return DiskFull(
            f"no room left to write {path} ({cause}). Nothing already written is lost: free some space on that disk, "
            "then run the same command again."
        )
    if error.errno in _FORBIDDEN:
        return DiskError(
            f"not allowed to write {path} ({cause}). Make the folder writable, then run the same command again, or choose "
            "another folder with --out."
        )
    return DiskError(
        f"could not write {path} ({cause}). Check that the disk is available, then run the same command again."
    )


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block succeeds and is removed when it fails.

    Raises:
        DiskFull: no space is left; `path` is unchanged.
        DiskError: the operating system refuses for another reason.

    Example:
        >>> with atomic(Path("result.bin")) as file:  # doctest: +SKIP
        ...     file.write(b"content")
    """
    # In the same folder, because a rename is atomic within one file system only. The name has the process and a serial
    # number: two processes or threads that write one file do not share a temporary one, and the last rename wins as a
    # whole.
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
    """Write `content` to `path` atomically.

    Raises:
        DiskFull, JobError: as `atomic`.
    """
    with atomic(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, atomically.

    Raises:
        InputError: the value contains something that JSON cannot represent (a NaN, a tensor).
        DiskFull, JobError: as `atomic`.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path.name}: expected finite numbers, strings, lists and dicts, got: {error}.") from error
    write_atomic(path, to_bytes(text + "\n"))


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: there is no such file.
        Damaged: the file is not JSON; the message contains the position.
        JobError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except MISSING as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    try:
        return json.loads(content)
    except ValueError as error:
        raise Damaged(
            f"{path} is damaged: expected JSON, got {len(content)} bytes with an error ({error}). Restore it from a copy."
        ) from error


def to_bytes(text: str) -> bytes:
    r"""UTF-8 of a JSON text. A lone surrogate (from an undecodable file name) becomes \udcXX, which JSON reads back."""
    return text.encode("utf-8", "backslashreplace")


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist.

    Raises:
        InputError: a file exists at the path.
        JobError: the operating system refuses.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{path}: expected a folder, got a file. Choose another folder with --out.") from error
    except OSError as error:
        raise disk_error(error, path) from error


def make_inner_folder(path: Path) -> None:
    """Create a folder in one that exists, unless it is there already: a parent that was removed is not made again.

    Raises:
        DiskError: the operating system refuses, also because there is no parent.
    """
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise disk_error(error, path) from error


def remove(path: Path) -> None:
    """Remove a file, unless there is none.

    Raises:
        DiskError: the operating system refuses.
    """
    try:
        path.unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # one of its folders is a file now
    except OSError as error:
        raise disk_error(error, path) from error


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk, so that it survives a power cut.

    Raises:
        OSError: the operating system refuses; `disk_error` makes it readable.
    """
    # fsync flushes the file, whoever wrote it and through whichever handle; a folder cannot be opened for writing at
    # all.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
