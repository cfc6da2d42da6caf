"""Work on a list by this process and a fork of it, each taking every second item.

A fork needs no imports and no copies, but copies only the thread that calls it: a lock that another thread holds stays locked
in the child forever. Therefore nothing is forked while other Python threads run, or where torch, whose threads Python does not
know, is imported. (numpy's OpenBLAS has threads too, and stops them before a fork itself.)
"""

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


# Why a fork: drawing is most of a report's time (matplotlib is pure Python here, so threads would take turns). A
# spawned process would import matplotlib and numpy again, which takes longer than it saves, and every row would have
# to be pickled on the way in. A forked child has everything already; only its results come back through a pipe.
#
# What must hold: no other thread of this process may hold a lock at the moment of the fork. The child would wait for
# it for ever, in the middle of drawing, and the report would never end. Python's own threads can be counted. Those of
# torch cannot, so that a process that has imported torch draws alone. What would break otherwise shows up rarely and
# only on some machines, which is why the test is on the condition and not on the deadlock.
#
# One processor: a fork would only add its own cost, so it must have a second one to itself (`sched_getaffinity`
# respects the limits of containers and of Slurm, `os.cpu_count` does not).
def may_fork() -> bool:
    """True if a fork is safe here and has a processor to itself."""
    alone = threading.active_count() == 1 and "torch" not in sys.modules
    return alone and sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def in_two_processes(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Apply `work` to every item, in order; in one process where a fork is not safe.

    Args:
        work: without side effects; its results can be pickled.
        items: what it is applied to.

    Example:
        >>> in_two_processes(lambda number: number**2, [1, 2, 3])
        [1, 4, 9]
    """
    if len(items) < 2 or not may_fork():
        return [work(item) for item in items]
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    # Every second item: expensive figures (curves, measures per layer) stand next to each other, so that halves would
    # be unequal.
    child = context.Process(target=_send_results, args=(receiving, sending, work, items[1::2]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 counts OpenBLAS's threads
        child.start()
    sending.close()
    try:
        own = [work(item) for item in items[::2]]
        try:
            # The parent reads only after its own half. A pipe holds some 64 KiB; the child waits in `send` until
            # then, with its work done, so that nothing is lost but its exit.
            others = receiving.recv()
        except EOFError:  # it was killed or `work` failed there: repeated here, where an error is raised
            others = [work(item) for item in items[1::2]]
    finally:
        receiving.close()  # ends a child that is still sending
        child.join()
    results: list[Result] = [own[0]] * len(items)
    results[::2], results[1::2] = own, others
    return results


def _send_results(
    receiving: Connection, sending: Connection, work: Callable[[Item], Result], items: Sequence[Item]
) -> None:
    receiving.close()  # a copy of the parent's end, which would keep the pipe open after the parent closed its own
    try:
        sending.send([work(item) for item in items])
    except Exception:  # noqa: BLE001  whatever `work` raises: the parent repeats it, and it is raised there
        sending.close()
