"""How far a command is that works through runs: a bar on a terminal, a line now and then elsewhere, on standard error."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress

LINE_EVERY_S = 15.0


class Counted:
    """For the length of a block, shows what `done` tells.

    Args:
        unit: what is counted, such as "runs".
        shown: whether anything is shown at all.
    """

    def __init__(self, unit: str, *, shown: bool) -> None:
        console = Console(stderr=True)
        self.unit, self.shown = unit, shown
        self._bar = Progress(console=console, transient=True) if shown and console.is_terminal else None
        self._task = self._bar.add_task(unit, total=None) if self._bar is not None else None
        self._said = time.monotonic()

    def __enter__(self) -> "Counted":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, count: int, total: int, last: str) -> None:
        """`count` of `total` are done, `last` the newest of them."""
        text = f"{count} of {total} {self.unit}, last {last}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=count, total=total, description=text)
        elif self.shown and time.monotonic() - self._said >= LINE_EVERY_S:
            self._said = time.monotonic()
            print(text, file=sys.stderr)
