"""Pages that wait for a change, the thread that looks for one, and the stream of changes that each page receives."""

import asyncio
import json
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

REMIND_S = 15.0
"""Seconds between lines that keep an idle connection open through proxies."""


# Changes come from a thread that reads folders, pages wait in the server's event loop. An asyncio.Event may be set
# only in its own loop, so that the loop is kept with it and asked to set it.
class Listeners:
    """The open pages of a site. Any thread may wake them."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def listen(self) -> tuple[asyncio.Event, Callable[[], None]]:
        """An event that is set at every change, and a function to call when it is no longer needed."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._guard:
            self._waiting.add(entry)

        def leave() -> None:
            with self._guard:
                self._waiting.discard(entry)

        return entry[1], leave

    def wake(self) -> None:
        """Set every page's event."""
        with self._guard:
            waiting = list(self._waiting)
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class Watcher(ABC):
    """A thread that looks at folders again and again, and the pages that wait for what it sees.

    Args:
        name: of the thread.
        every_s: seconds between two looks.
    """

    def __init__(self, name: str, every_s: float) -> None:
        self.epoch = secrets.token_hex(4)
        """Distinguishes this server's numbers from those of an earlier one."""
        self.every_s = every_s
        self.listeners = Listeners()
        self._name = name
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def look(self) -> None:
        """Look once and announce changes. Any thread may call it."""

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_on, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread and release every waiting page."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self.listeners.wake()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def _look_on(self) -> None:
        while not self._stop.wait(self.every_s):
            self.look()


def number_of(text: str, epoch: str) -> int:
    """The number in a change's id; -1 if it is another server's or not an id."""
    of, _, number = text.partition("-")
    return int(number) if of == epoch and number.isdecimal() and len(number) < 16 else -1


async def stream(
    watcher: Watcher, after: str, change_after: Callable[[int], tuple[int, dict[str, Any] | None]]
) -> AsyncIterator[str]:
    """Server-sent events: every change once and in order.

    Args:
        watcher: wakes its listeners at each change; its end is that of the stream.
        after: id of the last change that the page has seen.
        change_after: the newest number and all that changed after a number; None if nothing did.
    """
    number = number_of(after, watcher.epoch)
    woken, leave = watcher.listeners.listen()
    try:
        yield "retry: 1000\n\n"
        while not watcher.is_stopped:
            # Cleared before looking, not after: a change between the look and the wait sets the event again, and the
            # wait returns at once. Cleared after, such a change would be noticed only at the next one.
            woken.clear()
            number, content = await run_in_threadpool(change_after, number)
            if content is not None:
                # One line of data: JSON holds no raw line end, which would end the field. HTML of sections travels
                # inside it.
                data = json.dumps(content, ensure_ascii=False)
                yield f"event: change\nid: {watcher.epoch}-{number}\ndata: {data}\n\n"
                continue
            try:
                await asyncio.wait_for(woken.wait(), timeout=REMIND_S)
            except TimeoutError:
                yield ": still here\n\n"
    finally:
        # Also when the visitor is gone: the server then closes this generator. Without it, each closed tab would
        # leave an event that is set for ever.
        leave()
