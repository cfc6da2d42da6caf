"""A lock that the kernel drops when its holder dies, kill -9 included.

Why flock: it needs no heart-beat and no time-out. What makes it delicate, and what is done about it:

- Looking disturbs. A test for the lock must take a shared lock for a moment, and a worker that starts in that moment
  would be refused. So a refused `try_acquire` asks for the shared lock itself: if it gets it, only lookers were there,
  and it tries again.
- Children keep it. A forked child (a data loader's) holds the same open file and would keep a dead worker's lock alive.
  So children close it as they are born.
- Files can be swapped. A lock on a deleted file excludes nobody, so the file is compared with its path afterwards.
"""

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path

from addnorm.errors import JobError
from addnorm.store.files import disk_error

_TRIES = 1000
_PAUSE_S = 0.002


class Lock:
    """An exclusive lock on one file, held until `release` or the holder's death. The file itself is never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        _locks.add(self)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, without waiting; write this process's id into the file.

        Raises:
            JobError: the file cannot be written, or its disk knows no locks.
        """
        if self._handle is not None:
            return True
        for _ in range(_TRIES):
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise disk_error(error, self.path) from error
            if _flock(handle, fcntl.LOCK_EX, self.path):
                if _is_at(handle, self.path):
                    self._sign(handle)
                    self._handle = handle
                    return True
            elif not _shareable(handle, self.path):
                os.close(handle)
                return False
            os.close(handle)
            time.sleep(_PAUSE_S)
        return False

    def release(self) -> None:
        """Give the lock back; nothing happens if it is not held."""
        if self._handle is not None:
            # An explicit unlock also reaches a child that was born this instant and has not closed its copy yet.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
            self._close()

    def held_by(self) -> int | None:
        """Process id of whoever holds the lock now; None if nobody does (or the holder has not signed yet)."""
        if not is_held(self.path):
            return None
        with suppress(OSError, ValueError):
            return int(self.path.read_text())
        return None

    def _sign(self, handle: int) -> None:
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(handle)
            raise disk_error(error, self.path) from error

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_held(path: Path) -> bool:
    """Whether some living process holds the lock on `path`. Disturbs nobody and needs no right to write.

    Raises:
        JobError: the file cannot be opened, or its disk knows no locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    try:
        return not _shareable(handle, path)
    finally:
        os.close(handle)


def _shareable(handle: int, path: Path) -> bool:
    if not _flock(handle, fcntl.LOCK_SH, path):
        return False
    fcntl.flock(handle, fcntl.LOCK_UN)
    return True


def _flock(handle: int, how: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        os.close(handle)
        raise JobError(
            f"the disk that holds {path} knows no file locks ({error.strerror}). Choose a local folder with --out."
        ) from error
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _leave_locks_to_the_parent() -> None:
    for lock in list(_locks):
        lock._close()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)
