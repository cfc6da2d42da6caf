"""A lock that the kernel releases when its holder dies, including kill -9.

Why flock: it needs neither a heartbeat nor a timeout. Three difficulties and their solutions:

- Testing interferes. A test for the lock takes a shared lock for a moment, and a worker that starts in that moment would be
  refused. A refused `try_acquire` therefore requests the shared lock: if it gets it, only tests were in the way, and it tries
  again.
- Children inherit it. A forked child (of a data loader, for example) holds the same open file and would keep the lock of a
  dead worker. Children therefore close it immediately after the fork.
- Files can be replaced. A lock on a deleted file excludes nobody, so the file is compared with its path after locking.
"""

import fcntl
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from addnorm.errors import JobError
from addnorm.store.files import MISSING, disk_error

_TRIES = 1000
_PAUSE_S = 0.002


class Lock:
    """Exclusive lock on one file, held until `release` or until the process ends. The file itself is never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        _locks.add(self)

    def try_acquire(self) -> bool:
        """Take the lock if it is free, without waiting, and write this process's id into the file.

        Returns:
            True if this object holds the lock.

        Raises:
            JobError: the file cannot be written, or its file system does not support locks.
        """
        if self._handle is not None:
            return True
        # Three outcomes of a try: the lock, and the file is still the one at the path; the lock of a file that was
        # replaced meanwhile, which excludes nobody and is let go; no lock. In the last case, a shared lock that can be
        # had says that only tests for the lock were in the way.
        for _ in range(_TRIES):
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise disk_error(error, self.path) from error
            try:
                if _flock(handle, fcntl.LOCK_EX, self.path):
                    if _is_at(handle, self.path):
                        self._sign(handle)
                        self._handle = handle
                        return True
                elif not _shareable(handle, self.path):
                    return False
            finally:
                if self._handle is None:
                    os.close(handle)
            time.sleep(_PAUSE_S)
        return False

    @contextmanager
    def held(self, refusal: Callable[[int | None], str]) -> Iterator[None]:
        """Hold the lock during the block.

        Args:
            refusal: makes the message of the process id of another holder.

        Raises:
            JobError: another process holds it, or as `try_acquire`.
        """
        if not self.try_acquire():
            raise JobError(refusal(self.held_by()))
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock. Releasing a lock that is not held has no effect."""
        if self._handle is not None:
            # An explicit unlock also releases the copy of a child that was just forked and has not closed it yet.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
            self._close()

    def is_lost(self) -> bool:
        """True once the file of the lock that this object holds was removed or replaced: it excludes nobody any more."""
        try:
            return self._handle is not None and not _is_at(self._handle, self.path)
        except OSError:
            return False  # the file server is away, which says nothing about the file

    def held_by(self) -> int | None:
        """Process id of the present holder; None if there is none, or if it has not written its id yet."""
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
            raise disk_error(error, self.path) from error

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_held(path: Path) -> bool:
    """True if a living process holds the lock on `path`. Needs no permission to write and interferes with nobody.

    Raises:
        JobError: the file cannot be opened, or its file system does not support locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except MISSING:
        return False
    except OSError as error:
        raise JobError(f"could not read {path} ({error.strerror}).") from error
    try:
        return not _shareable(handle, path)
    finally:
        os.close(handle)


def _shareable(handle: int, path: Path) -> bool:
    # A shared lock, so that any number of readers can test at the same time without refusing each other.
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
        raise JobError(
            f"{path}: expected a file system with locks, got an error ({error.strerror}). Choose a local folder with --out."
        ) from error
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except MISSING:
        return False


_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_inherited_locks() -> None:
    # Only closed, not unlocked: flock belongs to the open file, which parent and child share, and LOCK_UN in the child
    # would release the parent's lock.
    for lock in list(_locks):
        lock._close()


os.register_at_fork(after_in_child=_close_inherited_locks)
