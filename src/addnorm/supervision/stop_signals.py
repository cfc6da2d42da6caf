"""Counting of Ctrl-C and SIGTERM, in place of Python's immediate interruption."""

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Context in which SIGINT and SIGTERM are counted: the first requests an orderly stop, the second an immediate one.

    A context within another counts for both. Python delivers signals to the main thread only; in another thread the context
    changes nothing and counts nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        """Signals received so far."""
        self._received = threading.Event()
        self._previous: dict[signal.Signals, Any] = {}

    def wait(self, timeout_s: float) -> None:
        """Sleep until the next signal, at most `timeout_s`."""
        self._received.wait(timeout_s)
        self._received.clear()

    def __enter__(self) -> "StopSignals":
        # A notebook may run a study in a thread, where `signal.signal` raises. There, Ctrl-C stays the notebook's own.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._count) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        # A handler runs between any two bytecodes of the main thread, so it only counts and sets an event. The outer
        # context, of the loop over stages, must hear it too: otherwise it would start the next stage after the user has
        # stopped this one.
        self.count += 1
        self._received.set()
        outer = getattr(self._previous.get(signal.Signals(number)), "__self__", None)
        if isinstance(outer, StopSignals):
            outer._count(number, frame)
