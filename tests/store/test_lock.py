import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from addnorm.errors import JobError
from addnorm.store import Lock, is_held

HOLD = """
import sys, time
from pathlib import Path
from addnorm.store import Lock
print(Lock(Path(sys.argv[1])).try_acquire(), flush=True)
time.sleep(600)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    return holder


def kill(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.communicate()


def test_a_lock_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert not is_held(tmp_path / "lock")
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.held_by() == os.getpid()
    first.release()
    first.release()
    assert second.held_by() is None
    assert second.try_acquire()
    second.release()


def test_kill_9_drops_the_lock(tmp_path: Path) -> None:
    holder = hold(tmp_path / "lock")
    lock = Lock(tmp_path / "lock")
    assert not lock.try_acquire()
    assert lock.held_by() == holder.pid
    kill(holder)
    assert not is_held(tmp_path / "lock")
    assert lock.try_acquire()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    assert lock.try_acquire()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b".")
        signal.pause()
    try:
        assert os.read(ready, 1) == b"."
        lock._close()  # what death does: the file is closed, not unlocked
        assert not is_held(tmp_path / "lock")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def test_looking_never_keeps_a_worker_from_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(path)
    assert lock.try_acquire()
    lock.release()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_held(path)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(300):
            assert lock.try_acquire()
            lock.release()
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_a_deleted_lock_file_excludes_nobody_for_long(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = hold(path)
    path.unlink()
    lock = Lock(path)
    assert lock.try_acquire()  # the old file's holder cannot be seen any more
    assert is_held(path)
    lock.release()
    kill(holder)


def test_a_lock_file_that_is_swapped_while_it_is_taken_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real, swaps = fcntl.flock, [1]

    def swap_then_lock(handle: int, how: int) -> None:
        if swaps:
            swaps.pop()
            path.unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", swap_then_lock)
    lock = Lock(path)
    assert lock.try_acquire()
    assert is_held(path)
    lock.release()


def test_a_lock_in_no_folder_is_explained(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "no" / "lock")
    with pytest.raises(JobError, match="could not write"):
        Lock(tmp_path / "no" / "lock").try_acquire()


@pytest.mark.parametrize("ask", [is_held, lambda path: Lock(path).try_acquire()], ids=["is_held", "try_acquire"])
def test_a_file_system_without_locks_is_named_and_its_file_closed_once(
    ask: Callable[[Path], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    path = tmp_path / "lock"
    path.touch()
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(JobError, match="expected a file system with locks"):
        ask(path)
    assert len(os.listdir("/proc/self/fd")) == before
