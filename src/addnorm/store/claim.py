"""Claims: at most one process works in a folder, on whichever host it is.

    claims/000003        JSON with the holder: worker, host, place, pid, beat_s. Created exclusively, never rewritten.
    claims/000003.beat   a counter that the holder raises every `beat_s` seconds
    claims/000003.end    exists once the holder has let go

The newest claim is in force until it lapses. Three events make it lapse:

- its `.end` exists;
- the folder's lock is free, and the claim was made at the reader's own place (host and process namespace), where the kernel
  releases the lock of a dead process;
- its counter stood still during four looks, one `beat_s` apart by the reader's own clock. Looks are counted, not seconds:
  while a file server is down, neither the holder nor the reader gets further.

Two processes that both see claim 3 lapse both try to create claim 4, and the file system lets one of them succeed. No two
clocks are compared. A file system with exclusive creation is enough (NFS from version 3); locks only save waiting.
"""

import functools
import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from addnorm.errors import InputError
from addnorm.store.files import disk_error, make_inner_folder

BEAT_S = 5.0
"""Seconds between two beats, unless ADDNORM_HEARTBEAT_S names others."""
_PATIENCE = 4
_OLD_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that made a claim."""

    worker: str
    """Its id: `host:pid`, or that of a scheduler's job."""
    host: str
    place: str
    """Host and process namespace within which the lock of a dead process is seen to be free."""
    pid: int
    beat_s: float

    @property
    def is_here(self) -> bool:
        """True if its process id is one of this host's."""
        return self.place == _place()


UNKNOWN = Holder(worker="", host="", place="", pid=0, beat_s=BEAT_S)
"""Holder of a claim whose process died between creating and writing the file, or is about to write it."""


class InForce(Exception):
    """Another claim is in force; `holder` made it."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder.worker)
        self.holder = holder


class Claims:
    """The claims of one folder, for a reader that looks at them again and again.

    Args:
        folder: the folder `claims`; made with the first claim, in a folder that exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._watched: _Watched | None = None

    def newest(self) -> tuple[int, Holder] | None:
        """Number and holder of the newest claim; None before the first."""
        number = self._newest_number()
        return None if number == 0 else (number, self._holder(number))

    def held_elsewhere(self) -> Holder | None:
        """Holder of the claim in force, if it is at another place; None if there is none, or if the lock tells.

        The first look can only tell that the claim has not ended. It then counts as lapsed if its last beat is ten minutes
        old by the clocks of both hosts, which a copied folder needs; no worker starts on this ground.
        """
        newest = self.newest()
        if newest is None or not self._may_live(*newest):
            return None
        number, holder = newest
        watched = self._watch(number, holder)
        if watched.stood_still:
            return None
        if not watched.moved and time.time() - self._last_sign(number) > _OLD_S:
            return None
        return holder

    def acquire(self, least: int = 1) -> "Claim":
        """Make the next claim. The caller holds the folder's lock.

        Waits for four beats if the claim in force is at another place and gives no sign of life.

        Args:
            least: the smallest number that the claim may have.

        Raises:
            InForce: another claim is in force.
            InputError: ADDNORM_HEARTBEAT_S is not a number of seconds.
            DiskFull, JobError: the folder cannot be written.
        """
        # The order matters. The lock, which the caller holds, settles who comes first among processes of one kernel;
        # the claim settles it between hosts. Everything up to the exclusive creation only looks: two processes may both
        # find claim 3 lapsed, and the file system lets one of them create claim 4.
        beat_s = _beat_s()
        make_inner_folder(self.folder)
        newest = self.newest()
        if newest is not None and self._may_live(*newest):
            self._await_lapse(*newest)
        number = max(0 if newest is None else newest[0], least - 1) + 1
        holder = Holder(worker=worker_id(), host=_host(), place=_place(), pid=os.getpid(), beat_s=beat_s)
        # O_EXCL is the whole agreement between hosts; a rename would replace the other's claim without a word. The
        # content comes afterwards: a reader that finds the file empty takes its holder for UNKNOWN, at no place of its
        # own, and waits for beats as it does for any other host.
        try:
            handle = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise InForce(self._holder(number)) from None
        except OSError as error:
            raise disk_error(error, self._path(number)) from error
        try:
            os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)
        except OSError as error:
            raise disk_error(error, self._path(number)) from error
        finally:
            os.close(handle)
        claim = Claim(self, number, holder)
        # A process that slept since it looked may have taken a number that was used and removed since.
        # Such a number is lower than the newest, so nobody would look at this claim: two workers would train one run.
        if claim.is_superseded():
            claim.release()
            raise InForce(self._holder(self._newest_number()))
        # The claim before this one stays: its holder may only now wake up, and reads in it that it is no longer the
        # newest.
        self._remove_before(number - 1)
        return claim

    def _await_lapse(self, number: int, holder: Holder) -> None:
        while not self._watch(number, holder).stood_still:
            if self._watched is not None and self._watched.moved:
                raise InForce(holder)
            if not self._may_live(number, holder):
                return
            time.sleep(holder.beat_s / 4)

    def _may_live(self, number: int, holder: Holder) -> bool:
        # At one's own place the lock tells at once: the caller holds it, so whoever made this claim is dead. Elsewhere
        # only the beats can tell, and the host's name is not enough: two containers of one host see each other's locks,
        # but not each other's process ids.
        return holder.place != _place() and not self._path(number, ".end").exists()

    def _watch(self, number: int, holder: Holder) -> "_Watched":
        if self._watched is None or self._watched.number != number:
            self._watched = _Watched(number, holder.beat_s)
        self._watched.look(self._beat(number))
        return self._watched

    def _beat(self, number: int) -> str:
        with suppress(OSError):
            return self._path(number, ".beat").read_text()
        return ""

    def _last_sign(self, number: int) -> float:
        """Time of the newest sign of life of a claim, by the clock of its host; 0.0 without any."""
        for suffix in (".beat", ""):
            with suppress(OSError):
                return self._path(number, suffix).stat().st_mtime
        return 0.0

    def _holder(self, number: int) -> Holder:
        with suppress(OSError, ValueError, TypeError):
            return Holder(**json.loads(self._path(number).read_text()))
        return UNKNOWN

    def _newest_number(self) -> int:
        with suppress(OSError):  # none yet, or none that this process can read
            return max((int(name) for name in os.listdir(self.folder) if name.isdecimal()), default=0)
        return 0

    def _path(self, number: int, suffix: str = "") -> Path:
        return self.folder / f"{number:06d}{suffix}"

    def _remove_before(self, number: int) -> None:
        for path in self.folder.glob("*"):
            if path.stem.isdecimal() and int(path.stem) < number:
                with suppress(OSError):  # left for the next claim
                    path.unlink()


class Claim:
    """A claim that this process holds; a thread raises its counter until `release`."""

    def __init__(self, claims: Claims, number: int, holder: Holder) -> None:
        self.number = number
        self.holder = holder
        self.lost = False
        """True once a beat has found a newer claim."""
        self._claims = claims
        self._over = threading.Event()
        # Before the thread, so that a claim without a beat file is one whose holder died in its first moments.
        self._write_beat(0)
        threading.Thread(target=self._beat, daemon=True, name=f"claim {number}").start()

    def is_superseded(self) -> bool:
        """True once another process has made a newer claim, because this one gave no sign of life."""
        return self._claims._newest_number() > self.number

    def release(self) -> None:
        """End the claim. Releasing it again has no effect."""
        if not self._over.is_set():
            self._over.set()
            with suppress(OSError):  # a full disk; the free lock and the silent counter tell the same
                self._claims._path(self.number, ".end").touch()

    def _beat(self) -> None:
        count = 0
        # A daemon thread: it must not keep a worker alive that has returned from its work. While the worker is stopped
        # by a debugger or swapped out, this thread stands still too, which is what a reader is to see.
        while not self._over.wait(self.holder.beat_s):
            count += 1
            self._write_beat(count)
            self.lost = self.lost or self.is_superseded()

    def _write_beat(self, count: int) -> None:
        # Opened anew for each beat: readers on a network file system see a file's content when it was closed.
        with suppress(OSError):  # the file server is away; if it stays so, the claim lapses
            path = self._claims._path(self.number, ".beat")
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.pwrite(handle, f"{count:012d}\n".encode(), 0)
            finally:
                os.close(handle)


class _Watched:
    """Observations of one claim's counter by a reader."""

    def __init__(self, number: int, beat_s: float) -> None:
        self.number = number
        self.moved = False
        self._beat_s = beat_s
        self._counter: str | None = None
        # Looks that found the counter as it was. Counted, not timed: a reader whose own machine slept for an hour has
        # looked once, and must not take the hour for the silence of the holder.
        self._looks = 0
        self._last = -float("inf")

    @property
    def stood_still(self) -> bool:
        """True after four looks, one beat apart, at which the counter was as at the look before."""
        return self._looks > _PATIENCE

    def look(self, counter: str) -> None:
        """Note the counter, unless the last look was less than a beat ago."""
        # The first counter that is seen is no movement: it may have been written a year ago. `moved` is true from the
        # second different one on, which proves a living holder.
        if counter != self._counter:
            self.moved = self._counter is not None
            self._counter, self._looks, self._last = counter, 1, time.monotonic()
        elif time.monotonic() - self._last >= self._beat_s:
            self._looks += 1
            self._last = time.monotonic()


def worker_id() -> str:
    """Id of this process as a worker: ADDNORM_WORKER, which executors set, else `host:pid`."""
    return os.environ.get("ADDNORM_WORKER") or process_id(os.getpid())


def process_id(pid: int) -> str:
    """Id of a worker that is a process of this host."""
    return f"{_host()}:{pid}"


def _beat_s() -> float:
    given = os.environ.get("ADDNORM_HEARTBEAT_S")
    try:
        seconds = BEAT_S if not given else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < _OLD_S:
        raise InputError(f"ADDNORM_HEARTBEAT_S: expected a number of seconds between 0 and {_OLD_S:g}, got {given!r}.")
    return seconds


def _host() -> str:
    return os.environ.get("ADDNORM_HOST") or socket.gethostname()


def _place() -> str:
    return os.environ.get("ADDNORM_HOST") or _kernel()


@functools.cache
def _kernel() -> str:
    """This boot of this machine's kernel and the namespace of processes; the machine alone where neither can be read."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{uuid.getnode():x} {socket.gethostname()}"
