"""The processes (ranks) that train one run together: how they are started, how they meet, and sums across them.

Rank 0 has the run's claim and writes its files. A number of ranks is a power of two, so that sums across them continue the tree
of `tree_sum`: in round k, rank r exchanges its partial sum with rank r xor 2^k.

A rank that ends closes its connections, which makes the next exchange of every other rank fail. All ranks therefore end, and
the executor starts the run again from its checkpoint.
"""

import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]  # public, but not in its list of names

from addnorm.errors import InputError, JobError
from addnorm.training.tree_sum import ShardTerms

MEETING = "ADDNORM_MEETING"
"""Environment variable with the file by which the ranks that a worker started find each other."""
_PATIENCE = timedelta(minutes=30)
_START = 255
"""In place of an exit code: the ranks are to train."""


class RankLost(RuntimeError):
    """Another rank of the run has ended."""


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """A process among the ranks of its run."""

    rank: int
    size: int
    local: int
    """Number among the ranks of this host, which is that of its GPU."""
    meeting: Path | None
    """File by which the ranks find each other; None if torchrun's environment says where."""

    def device(self) -> torch.device:
        """This rank's device.

        Raises:
            InputError: the host has fewer GPUs than ranks.
        """
        if not torch.cuda.is_available():
            return torch.device("cpu")
        gpus = torch.cuda.device_count()
        if gpus == 1:  # each of srun's tasks may see its own GPU only
            return torch.device("cuda", 0)
        if self.local >= gpus:
            raise InputError(f"training.devices: expected at most the {gpus} GPUs of this host, got rank {self.local}.")
        return torch.device("cuda", self.local)


def joined_place(run: Path, devices: int, environment: Mapping[str, str] = os.environ) -> RankPlace | None:
    """The place of this process among ranks that something else started: torchrun, srun, or rank 0. None if nothing did.

    Args:
        run: the run's folder, where ranks of srun meet.
        devices: the number of ranks that the command asks for. Tasks of srun are ranks only if there are as many: a job may
            also hold several runs of one rank each.
        environment: the environment of the process.

    Raises:
        InputError: the number of ranks is not a power of two.
    """
    # RANK alone may come from another program around the worker; it counts only together with a way to meet the others.
    if "RANK" in environment and (MEETING in environment or "MASTER_ADDR" in environment):
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        meeting = Path(environment[MEETING]) if MEETING in environment else None
        return _place(rank, size, int(environment.get("LOCAL_RANK", rank)), meeting)
    if devices > 1 and environment.get("SLURM_NTASKS") == str(devices) and "SLURM_PROCID" in environment:
        rank = int(environment["SLURM_PROCID"])
        step = [environment.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT")]
        # Not a temporary file: rank 0 removes those when it claims the run, and another rank may have come before it.
        meeting = run / f".ranks-{'-'.join(step)}"
        return _place(rank, devices, int(environment.get("SLURM_LOCALID", rank)), meeting)
    return None


def _place(rank: int, size: int, local: int, meeting: Path | None) -> RankPlace:
    # Each round of a sum halves the number of partial sums, so a tree over ranks exists for powers of two alone. With
    # three ranks one node would have a single child, and the bits would differ from those of one rank.
    if size < 1 or size & (size - 1):
        raise InputError(f"expected a power of two of ranks, got {size}. Start 1, 2, 4, 8, … of them.")
    return RankPlace(rank=rank, size=size, local=local, meeting=meeting)


class Ranks(ABC):
    """The ranks of a run, as one of them sees them."""

    rank: int
    size: int

    @abstractmethod
    def sum(self, terms: ShardTerms, like: Sequence[Tensor]) -> ShardTerms:
        """Sum of all ranks' terms, continuing the tree of `TreeSum`; the same bits on every rank.

        Args:
            terms: this rank's partial sum.
            like: a tensor of the shape and layout of each term.
        """

    @abstractmethod
    def gather_rows(self, table: Tensor) -> Tensor:
        """Join tables whose rows are zero except on one rank each, exactly."""

    @abstractmethod
    def any(self, flag: bool) -> bool:
        """True if the flag is set on any rank."""

    @abstractmethod
    def require_equal(self, what: str, digest: bytes) -> None:
        """Make sure that all ranks have the same digest.

        Raises:
            JobError: they differ.
        """


class Alone(Ranks):
    """The only rank of a run."""

    rank, size = 0, 1

    def sum(self, terms: ShardTerms, like: Sequence[Tensor]) -> ShardTerms:
        return terms

    def gather_rows(self, table: Tensor) -> Tensor:
        return table

    def any(self, flag: bool) -> bool:
        return flag

    def require_equal(self, what: str, digest: bytes) -> None:
        pass


class RankGroup(Ranks):
    """One of several ranks, after they have met.

    Args:
        place: this process's place.
        messages: process group on the CPU, so that agreements do not wait for a GPU.
    """

    def __init__(self, place: RankPlace, messages: dist.ProcessGroup | None) -> None:
        self.rank, self.size, self._messages = place.rank, place.size, messages

    def sum(self, terms: ShardTerms, like: Sequence[Tensor]) -> ShardTerms:
        # Ranks must send buffers of one length, so they first agree on the gradients that exist anywhere. Where only
        # this rank has none, it counts as zeros; what no rank has stays None, because optimizers skip None but not
        # zeros.
        exists = self._largest([term is not None for term in terms])
        sums = [
            torch.zeros_like(shape) if term is None else term
            for term, shape, any_has in zip(terms, like, exists, strict=True)
            if any_has
        ]
        # One message per round, not one per tensor.
        flat = torch.cat([term.reshape(-1) for term in sums])
        distance = 1
        while distance < self.size:
            # Before the round with distance d, each aligned block of d ranks has the sum of its block. Partners r and r
            # xor d add the same two numbers, in the opposite order: a + b and b + a have the same bits, so all ranks
            # end with one result and none has to send it to the others.
            flat.add_(self.exchange(flat, self.rank ^ distance))
            distance *= 2
        # Into the gradients' own memory: what follows must not depend on where in a joint buffer a tensor lies.
        for term, total in zip(sums, flat.split([term.numel() for term in sums]), strict=True):
            term.copy_(total.view(term.shape))
        joined = iter(sums)
        return [next(joined) if any_has else None for any_has in exists]

    def gather_rows(self, table: Tensor) -> Tensor:
        with lost():
            dist.all_reduce(table, group=self._messages)  # x + 0 is exact in any order
        return table

    def any(self, flag: bool) -> bool:
        return self._largest([flag])[0]

    def require_equal(self, what: str, digest: bytes) -> None:
        own = torch.tensor(list(digest), dtype=torch.uint8)
        first = own.clone()
        with lost():
            dist.broadcast(first, 0, group=self._messages)
        if self.any(not torch.equal(own, first)):
            raise JobError(
                f"{what} differ between the ranks of the run: expected equal bits on all devices. Use devices of one model, "
                "and deterministic algorithms."
            )

    def begin(self, code: int | None) -> int | None:
        """Tell or hear whether the ranks are to train.

        Args:
            code: of rank 0: the exit code with which all ranks are to end, or None to train. Other ranks pass None.

        Returns:
            The exit code, or None to train.
        """
        word = torch.tensor([_START if code is None else code], dtype=torch.uint8)
        with lost():
            dist.broadcast(word, 0, group=self._messages)
        return None if word.item() == _START else int(word.item())

    def _largest(self, flags: Sequence[bool]) -> list[bool]:
        message = torch.tensor(flags, dtype=torch.uint8)
        with lost():
            dist.all_reduce(message, op=dist.ReduceOp.MAX, group=self._messages)
        return [bool(flag) for flag in message.tolist()]

    def exchange(self, own: Tensor, peer: int) -> Tensor:
        other = torch.empty_like(own)
        with lost():
            # One partner lists its send first and the other its receive, so that no pair of ranks waits for each other
            # to receive.
            work = [dist.P2POp(dist.isend, own, peer), dist.P2POp(dist.irecv, other, peer)]
            for request in dist.batch_isend_irecv(work if self.rank < peer else work[::-1]):
                request.wait()
        return other


@contextmanager
def lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankLost(f"another rank of the run has ended: {str(error).partition(chr(10))[0]}") from error


def meeting_store(path: Path) -> FileStore:
    """The store in a file by which ranks meet; the last one that parts from it removes the file."""
    # With a number of workers, a store counts those that part and those that are left in two steps, and removes the file if
    # both say that it is the last. Two that part at once may each see one of the two, and neither removes it. With 0, the
    # number of those that are left decides alone.
    return FileStore(str(path), 0)


@contextmanager
def met(place: RankPlace, started: Sequence["Process"] = ()) -> Iterator[RankGroup]:
    """Meet the other ranks, and part from them at the end of the block.

    Args:
        place: this process's place.
        started: the ranks that this process started, which are watched until all have met.

    Raises:
        RankLost: a rank ended before it came.
    """
    device = place.device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = None
    if place.meeting is not None:
        store = meeting_store(place.meeting)
        # The process group alone would wait for its time limit of half an hour if a rank died before it came. Ranks
        # therefore sign in first, while rank 0 watches the processes that it started.
        store.set(f"rank {place.rank}", "here")
        _wait(store, place.size, started)
        if place.rank == 0:
            for old in place.meeting.parent.glob(".ranks-*"):  # of ranks that were killed
                if old != place.meeting:
                    old.unlink(missing_ok=True)
    with lost():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=_PATIENCE,
        )
    try:
        # Agreements (is a stop asked for, which gradients exist) are a few bytes in the memory of the host. On NCCL
        # they would queue behind the work of the GPU, and every one of them would wait for it.
        yield RankGroup(place, dist.new_group(backend="gloo") if device.type == "cuda" else None)
    finally:
        # After an error too: closed connections are how the other ranks learn of it.
        dist.destroy_process_group()


def _wait(store: FileStore, size: int, started: Sequence["Process"]) -> None:
    names = [f"rank {rank}" for rank in range(size)]
    end = time.monotonic() + _PATIENCE.total_seconds()
    while not store.check(names):
        ended = [place for place, process in enumerate(started, start=1) if process.poll() is not None]
        if ended or time.monotonic() > end:
            raise RankLost(f"rank {ended[0]} ended before it met the others" if ended else "not all ranks have come")
        time.sleep(0.01)


@runtime_checkable
class Process(Protocol):
    """A rank that this process started."""

    def poll(self) -> int | None:
        """Exit code; None while it is alive."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """Kill it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""


def spawn(arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
    """Start the worker command as a rank; it writes to this process's log."""
    command = [sys.executable, "-m", "addnorm.training.worker", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **environment})


@contextmanager
def started_ranks(arguments: Sequence[str], size: int) -> Iterator[tuple[RankPlace, list[Process]]]:
    """Start the other ranks of a run, which this process leads, and end them with the block.

    Args:
        arguments: the worker command's arguments.
        size: number of ranks, this process included.
    """
    with tempfile.TemporaryDirectory(prefix="addnorm-ranks-") as folder:
        meeting = Path(folder) / "meeting"
        processes: list[Process] = []
        try:
            for rank in range(1, size):
                names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), MEETING: str(meeting)}
                processes.append(spawn(arguments, names))
            yield RankPlace(rank=0, size=size, local=0, meeting=meeting), processes
        finally:
            _end(processes)


def _end(processes: Sequence[Process]) -> None:
    """Wait for ranks that end as rank 0 does, and kill what is left."""
    # They end by the same decision as rank 0, or when their connection to it closes; the seconds are for their last
    # words in the log.
    end = time.monotonic() + 5.0
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
