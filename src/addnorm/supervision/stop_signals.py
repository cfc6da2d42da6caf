"""Ctrl-C and SIGTERM, counted instead of obeyed at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Within the block, a first signal asks for an orderly end and a second one for an end at once.

    Python delivers signals to the main thread only; in another thread the block changes nothing and counts nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        """Signals that have come so far."""
        self._woken = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def wait(self, wait_s: float) -> None:
        """Sleep, but no longer than until the next signal."""
        self._woken.wait(wait_s)
        self._woken.clear()

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._came) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._woken.set()
